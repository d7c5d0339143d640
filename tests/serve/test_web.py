"""The server over real HTTP answers what the model answers, and mistakes with one sentence."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.serve import answers as answers_of
from evenhand.serve.answers import HotModel
from run_cli import one_thread, small_log
from serving import ask, serving
from small_model import model as small_model


def made(kind: str) -> eh.models.Model:
    if kind != "ease":
        return replace(small_model(kind), titles=pa.array([None, *(f"Café {n}" for n in range(11))]))
    with one_thread():
        return eh.EASE().fit_pairs(small_log())


@pytest.fixture(scope="module", params=["string", "integer", "ease"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, eh.models.Model]]:
    model, folder = made(request.param), tmp_path_factory.mktemp("serve") / "model"
    model.save(folder)
    with serving(folder) as (url, _):
        yield url, model


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("serve") / "model"
    made("string").save(folder)
    with serving(folder) as (url, _):
        yield url


def ordinary(model: eh.models.Model) -> Any:
    """A user who has some of the items."""
    activity = model.known.activity
    return model.known.user_ids[int(np.flatnonzero((activity > 1) & (activity < model.known.n_items // 2))[0])].as_py()


def rows(model: eh.models.Model, table: pa.Table) -> list[dict[str, Any]]:
    names = [
        name for name in ("item", "title", "score", "rank") if name in (titled := model.titled(table)).column_names
    ]
    return titled.select(names).to_pylist()


def test_known_users_get_the_lists_of_the_model(served: tuple[str, eh.models.Model]) -> None:
    url, model = served
    for user in model.known.user_ids.to_pylist():
        status, found = ask(url, "/recommend", user=user, k=5)
        expected = model.recommend([user], 5, fallback=True)
        assert status == 200
        assert [row["item"] for row in found["items"]] == expected["item"].to_pylist()
        assert found["fallback"] == (model.known.activity[model.known.user_ids.to_pylist().index(user)] == 0)
        for row, other in zip(found["items"], rows(model, expected), strict=True):
            assert row == {**other, "score": pytest.approx(other["score"], rel=1e-5)}
        assert str(found["user"]) == str(user)


def test_filters_and_known_items(served: tuple[str, eh.models.Model]) -> None:
    url, model = served
    user, items = ordinary(model), model.known.item_ids.to_pylist()
    for limits in ({"exclude": items[:3]}, {"only": items[4:9]}, {"exclude": items[5:7], "only": items[4:9]}):
        for known in (False, True):
            expected = model.recommend([user], 12, known=known, **limits)["item"].to_pylist()
            for found in (
                ask(url, "/recommend", user=user, k=12, known=known, **limits)[1],
                ask(url, "/recommend", {"user": user, "k": 12, "known": known, **limits})[1],
            ):
                assert [row["item"] for row in found["items"]] == expected
    _, found = ask(url, "/recommend", user=user, only=[items[0], "nothing", "more"])
    assert found["notes"] == ["2 of 3 items in `only` are unknown to the model."]


def test_a_posted_history_is_folded_in(served: tuple[str, eh.models.Model]) -> None:
    url, model = served
    history = model.known.item_ids.take(pa.array([1, 4, 1])).to_pylist()
    folded = model.fold_in(pa.table({"user": ["x"] * 3, "item": history}))
    _, found = ask(url, "/recommend", {"history": [*history, "unheard of"], "k": 4})
    assert [row["item"] for row in found["items"]] == folded.recommend(k=4)["item"].to_pylist()
    assert not found["fallback"]
    assert found["notes"] == ["1 of 4 items in `history` is unknown to the model."]
    # A known user with a new history: scores come of that, and nothing they had is recommended either.
    user = ordinary(model)
    again = model.fold_in(pa.table({"user": [user] * 3, "item": history}))
    _, found = ask(url, "/recommend", {"user": user, "history": history, "k": 6})
    assert [row["item"] for row in found["items"]] == again.recommend(k=6)["item"].to_pylist()


def test_whom_the_model_does_not_know_gets_the_popular_items_marked(served: tuple[str, eh.models.Model]) -> None:
    url, model = served
    allowed = model.known.item_ids[2:].to_pylist()
    expected = model.recommend(["nobody"], 5, only=allowed, fallback=True)
    for status, found in (
        ask(url, "/recommend", user="nobody", k=5, only=allowed),
        ask(url, "/recommend", {"history": ["unheard of"], "k": 5, "only": allowed}),
        ask(url, "/recommend", {"k": 5, "only": allowed}),
    ):
        assert (status, found["fallback"]) == (200, True)
        assert [row["item"] for row in found["items"]] == expected["item"].to_pylist()
        assert [row["score"] for row in found["items"]] == expected["score"].to_pylist()
    assert ask(url, "/recommend", user="nobody", fallback=False) == (
        404,
        {"detail": "the model does not know the user 'nobody'."},
    )


def test_similar_items(served: tuple[str, eh.models.Model]) -> None:
    url, model = served
    item = model.known.item_ids[4].as_py()
    status, found = ask(url, "/similar", item=item, k=3)
    expected = model.similar(item, 3)
    assert (status, found["likeness"]) == (200, model.likeness)
    assert [row["item"] for row in found["items"]] == expected["item"].to_pylist()
    assert [row["score"] for row in found["items"]] == pytest.approx(expected["score"].to_pylist(), rel=1e-5)
    assert len(ask(url, "/similar", item=item, k=1000)[1]["items"]) <= model.known.n_items - 1


BAD = [
    ("/recommend", {}, None, 422, "user: field required."),
    ("/recommend", {"user": "a", "k": 0}, None, 422, "k: input should be greater than or equal to 1."),
    ("/recommend", {"user": "a", "k": 1001}, None, 422, "k: input should be less than or equal to 1000."),
    ("/recommend", {"user": "a", "k": "many"}, None, 422, "k: input should be a valid integer"),
    ("/recommend", {"user": "a", "K": 5}, None, 422, "K: extra inputs are not permitted."),
    ("/recommend", {"user": "a" * 1001}, None, 422, "user: string should have at most 1000 characters."),
    ("/recommend", {"user": "a", "only": ["no such item"]}, None, 404, "nothing is left to recommend"),
    ("/recommend", {}, {"fallback": False}, 404, "neither a user nor a history is given."),
    ("/recommend", {}, {"user": "a", "only": []}, 404, "nothing is left to recommend"),
    ("/recommend", {}, {"history": "17"}, 422, "history: input should be a valid list."),
    ("/recommend", {}, {"history": [1.5]}, 422, "history.0"),
    ("/recommend", {}, {"history": [True]}, 422, "history.0"),
    ("/recommend", {}, {"history": [10**30]}, 422, "history.0"),
    ("/recommend", {}, {"history": list(range(100_001))}, 422, "history: list should have at most 100000 items"),
    ("/recommend", {}, {"user": "a", "users": ["b"]}, 422, "users: extra inputs are not permitted."),
    ("/recommend", {}, "{", 400, "the body is no JSON."),
    ("/recommend", {}, "[" * 100_000, 400, "There was an error parsing the body"),
    ("/recommend", {}, b"\xff\xfe", 400, "the body is no JSON."),
    ("/recommend", {}, "null", 422, ""),
    ("/recommend", {}, '"' + "x" * 2**20 + '"', 413, "the body is larger than 1,048,576 bytes; send fewer ids."),
    ("/similar", {"item": "no such item"}, None, 404, "the model does not know the item 'no such item'."),
    ("/similar", {}, None, 422, "item: field required."),
    ("/similar", {"item": "a"}, {}, 405, "Method Not Allowed"),
    ("/nothing", {}, None, 404, "Not Found"),
]


@pytest.mark.parametrize(("path", "query", "body", "status", "sentence"), BAD)
def test_bad_input_is_one_sentence(
    server: str, path: str, query: dict[str, Any], body: Any, status: int, sentence: str
) -> None:
    found, document = ask(server, path, body, **query)
    assert found == status
    assert list(document) == ["detail"]
    assert document["detail"].startswith(sentence)
    assert "\n" not in document["detail"]


def test_a_body_without_a_length_is_limited_too(server: str) -> None:
    host, port = server.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    chunks = iter([b'{"history": ["', *[b"x" * 100_000] * 20, b'"]}'])
    try:
        connection.request("POST", "/recommend", chunks, {"Content-Type": "application/json"}, encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):  # it hung up before all was sent
        pass
    finally:
        connection.close()
    assert ask(server, "/health")[0] == 200


def test_a_model_of_counts_has_no_similar_items(tmp_path: Path) -> None:
    eh.Popular().fit_pairs(small_log()).save(tmp_path / "model")
    with serving(tmp_path / "model") as (url, _):
        status, found = ask(url, "/similar", item=3)
        assert (status, found["detail"][:17]) == (404, "a model of counts")
        assert ask(url, "/recommend", user=0, k=3)[0] == 200


def test_scores_that_are_no_numbers_are_the_servers_fault(tmp_path: Path) -> None:
    model = small_model("integer")
    model.user_vectors[:, 4] = float("nan")
    model.save(tmp_path / "model")
    with serving(tmp_path / "model") as (url, _):
        status, found = ask(url, "/recommend", user=104)
        assert (status, found["detail"][:34]) == (500, "the model's scores are not finite ")
        assert ask(url, "/recommend", user=103)[0] == 200


def test_health_metrics_card_and_description(served: tuple[str, eh.models.Model]) -> None:
    url, model = served
    ask(url, "/recommend", user="nobody")
    ask(url, "/made/up")
    health = ask(url, "/health")[1]
    assert (health["status"], health["problem"]) == ("ok", None)
    assert (health["model"]["users"], health["model"]["items"]) == (model.known.n_users, model.known.n_items)
    metrics = ask(url, "/metrics")[1]
    assert 'evenhand_requests_total{path="/recommend",status="200"}' in metrics
    assert 'evenhand_requests_total{path="other",status="404"}' in metrics
    assert 'evenhand_request_seconds_bucket{le="0.05",path="/recommend"}' in metrics
    assert "made/up" not in metrics
    assert float(metrics.split("\nevenhand_fallbacks_total ")[1].split()[0]) >= 1
    assert ask(url, "/card")[1].startswith("# model\n")
    assert {"/recommend", "/similar", "/health", "/metrics", "/card"} == set(ask(url, "/openapi.json")[1]["paths"])
    assert "swagger" in ask(url, "/docs")[1]


def versions(tmp_path: Path) -> tuple[Path, dict[str, list[Any]], list[eh.models.Model]]:
    """A folder, the lists of user 103 by the version of two models, and these."""
    folder, lists, models = tmp_path / "model", {}, [small_model("integer", seed) for seed in (1, 2)]
    for model in models:
        model.save(folder, force=True)
        items = model.recommend([103], 5)["item"].to_pylist()
        lists[HotModel(folder).current.version] = items
    assert len({tuple(items) for items in lists.values()}) == 2
    return folder, lists, models


def test_swaps_under_load_fail_no_request(tmp_path: Path) -> None:
    folder, lists, models = versions(tmp_path)
    answers: list[tuple[int, Any]] = []
    done = threading.Event()

    def load(url: str) -> None:
        while not done.is_set():
            answers.append(ask(url, "/recommend", user=103, k=5))

    with serving(folder, every=0.01) as (url, hot):
        threads = [threading.Thread(target=load, args=(url,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for swap in range(20):
            before = hot.current
            models[swap % 2].save(folder, force=True)
            for _ in range(1000):
                if hot.current is not before:
                    break
                done.wait(0.01)
            assert hot.current.model.recommend([103], 5)["item"].to_pylist() == list(lists.values())[swap % 2]
        done.set()
        for thread in threads:
            thread.join()
        metrics = ask(url, "/metrics")[1]
        assert float(metrics.split('evenhand_reloads_total{outcome="loaded"} ')[1].split()[0]) >= 20
        assert 'outcome="failed"' not in metrics
    assert {status for status, _ in answers} == {200}
    for _, found in answers:
        assert [row["item"] for row in found["items"]] == lists[found["model"]]
    assert {found["model"] for _, found in answers} == set(lists)


def test_a_folder_that_does_not_load_keeps_the_older_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, lists, models = versions(tmp_path)
    with serving(folder) as (url, hot):
        served = hot.current.version

        def state() -> tuple[str, str, str]:
            hot.look()
            health = ask(url, "/health")[1]
            items = [row["item"] for row in ask(url, "/recommend", user=103, k=5)[1]["items"]]
            assert items == lists[health["model"]["version"]]
            return health["status"], health["problem"] or "", health["model"]["version"]

        tensors = folder / "model.safetensors"
        content = tensors.read_bytes()
        tensors.write_bytes(content[:-1] + b"?")
        status, problem, version = state()
        assert (status, version) == ("stale", served)
        assert "model.safetensors is not the file that was saved" in problem
        assert "the older one goes on" in caplog.text
        assert "evenhand_model_stale 1.0" in ask(url, "/metrics")[1]
        folder.rename(tmp_path / "away")
        assert state()[0::2] == ("stale", served)
        models[0].save(folder)
        status, problem, version = state()
        assert (status, problem) == ("ok", "")
        assert version != served


def test_a_model_that_is_replaced_meanwhile_has_its_own_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is swapped after its tensors were read and before its version is."""
    folder, lists, models = versions(tmp_path)
    real, left = answers_of._version, [models[0]]

    def swapped(place: Path) -> str:
        if left:
            left.pop().save(place, force=True)
        return real(place)

    monkeypatch.setattr(answers_of, "_version", swapped)
    hot = HotModel(folder)
    assert hot.current.model.recommend([103], 5)["item"].to_pylist() == lists[hot.current.version]


def test_a_link_to_another_model_is_followed(tmp_path: Path) -> None:
    for seed in (1, 2):
        small_model("integer", seed).save(tmp_path / f"night-{seed}")
    link = tmp_path / "live"
    link.symlink_to("night-1")
    hot = HotModel(link)
    before = hot.current.version
    (tmp_path / "new").symlink_to("night-2")
    (tmp_path / "new").replace(link)
    hot.look()
    assert (hot.problem, hot.current.version == before) == (None, False)
