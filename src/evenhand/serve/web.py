"""The HTTP side: what may be asked, how much of it, what is counted, and how mistakes are answered."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import evenhand
from evenhand.serve.answers import LOG, HotModel, RefusedError
from evenhand.utils.errors import InputError
from evenhand.utils.text import one_line

MOST_K, MOST_IDS, MOST_IN_URL, MOST_BYTES, LONGEST_ID = 1_000, 100_000, 100, 2**20, 1_000
"""Of one request: list length, ids of one list in a body and in a URL, bytes of a body, characters of an id."""
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


def _whole(value: Any) -> Any:
    """To JSON 17.0 is the integer 17."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[StrictStr, Field(max_length=LONGEST_ID)]
Id = Annotated[Annotated[StrictInt, Field(ge=-(2**53), le=2**53)] | Text, BeforeValidator(_whole)]
K = Annotated[int, Field(ge=1, le=MOST_K, description="Length of the list."), BeforeValidator(_whole)]


class _Filters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    k: K = 20
    known: bool = Field(False, description="Let items through that the user already has.")
    fallback: bool = Field(True, description="Popular items for whom the model knows nothing of, marked; else 404.")


class UserQuery(_Filters):
    """Who is asked for in a URL."""

    user: Text
    exclude: list[Text] | None = Field(None, max_length=MOST_IN_URL, description="Items never to recommend.")
    only: list[Text] | None = Field(None, max_length=MOST_IN_URL, description="Recommend no other items.")


class Body(_Filters):
    """A user, a history, or both: then the history counts, and what the user had is not recommended either.

    Neither is a visitor of whom nothing is known.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    user: Id | None = None
    history: list[Id] | None = Field(None, max_length=MOST_IDS, description="Items that somebody interacted with.")
    exclude: list[Id] | None = Field(None, max_length=MOST_IDS, description="Items never to recommend.")
    only: list[Id] | None = Field(None, max_length=MOST_IDS, description="Recommend no other items.")


class SimilarQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    item: Text
    k: K = 10


class Item(BaseModel):
    item: int | str
    title: str | None = None
    score: float
    rank: int


class Recommendations(BaseModel):
    user: int | str | None
    fallback: bool = Field(description="True for the popular items, as the model knows nothing of the user.")
    items: list[Item]
    notes: list[str]
    model: str = Field(description="Which model answered: changes with every new one.")


class Similar(BaseModel):
    item: str
    items: list[Item]
    likeness: str = Field(description="What a score is: cosine or weight.")
    model: str


class Health(BaseModel):
    status: str = Field(description="ok, or stale where the folder holds a newer model that does not load.")
    problem: str | None
    loaded: str
    model: dict[str, Any]


class Problem(BaseModel):
    detail: str


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in ((404, "Not known to the model."), (422, "A wrong or missing parameter."))
}
_OVERSIZED: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "A body that is no JSON."},
    413: {"model": Problem, "description": "A body of more than a megabyte."},
}


def application(hot: HotModel) -> FastAPI:
    """The app that answers out of `hot.current`."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        hot.start()
        try:
            yield
        finally:
            hot.stop()

    app = FastAPI(
        title="evenhand",
        summary="Recommendations out of a trained model.",
        version=evenhand.__version__,
        lifespan=lifespan,
    )
    counters = _Counters(hot)
    app.add_middleware(_Guard, counters=counters)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _failed)
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(InputError, _unusable)

    @app.get("/recommend", response_model=Recommendations, responses=_PROBLEMS)
    def recommend(query: Annotated[UserQuery, Query()]) -> JSONResponse:
        """The best items for a user."""
        return answered(query.user, None, query)

    @app.post("/recommend", response_model=Recommendations, responses=_PROBLEMS | _OVERSIZED)
    def recommend_to(body: Body) -> JSONResponse:
        """The best items for a user or for somebody with this history, whom the model need not know."""
        return answered(body.user, body.history, body)

    def answered(user: Any, history: Any, asked: UserQuery | Body) -> JSONResponse:
        found = hot.current.recommend(
            user, history, asked.k, exclude=asked.exclude, only=asked.only, known=asked.known, fallback=asked.fallback
        )
        if found["fallback"]:
            counters.fallbacks.inc()
        return JSONResponse(found)

    @app.get("/similar", response_model=Similar, responses=_PROBLEMS)
    def similar(query: Annotated[SimilarQuery, Query()]) -> JSONResponse:
        """The items most like one."""
        return JSONResponse(hot.current.similar(query.item, query.k))

    @app.get("/health")
    async def health() -> Health:
        """Whether requests are answered, by which model, and why not by a newer one."""
        loaded = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(hot.loaded_at))
        status = "ok" if hot.problem is None else "stale"
        return Health(status=status, problem=hot.problem, loaded=loaded, model=hot.current.description)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Counters and latencies in the text format of Prometheus."""
        return PlainTextResponse(generate_latest(counters.registry), media_type="text/plain; version=0.0.4")

    @app.get("/card", response_class=_Markdown)
    async def card() -> _Markdown:
        """The model's card."""
        return _Markdown(hot.current.card)

    return app


class _Markdown(PlainTextResponse):
    media_type = "text/markdown"


class _Counters:
    def __init__(self, hot: HotModel) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("evenhand_requests", "Requests answered.", ("path", "status"), registry=self.registry)
        self.seconds = Histogram(
            "evenhand_request_seconds", "Time to answer.", ("path",), buckets=_BUCKETS, registry=self.registry
        )
        self.fallbacks = Counter("evenhand_fallbacks", "Lists of popular items.", registry=self.registry)
        reloads = Counter("evenhand_reloads", "New models found in the folder.", ("outcome",), registry=self.registry)
        loaded = Gauge("evenhand_model_loaded_timestamp_seconds", "When the model was loaded.", registry=self.registry)
        loaded.set_function(lambda: hot.loaded_at)
        stale = Gauge("evenhand_model_stale", "1 where a newer model does not load.", registry=self.registry)
        stale.set_function(lambda: float(hot.problem is not None))
        hot.on_reload = lambda worked: reloads.labels("loaded" if worked else "failed").inc()


class _Guard:
    """Counts and times every request, and lets no body through that is too large."""

    def __init__(self, app: ASGIApp, counters: _Counters) -> None:
        self.app, self.counters = app, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, size, begin = 500, 0, time.perf_counter()

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MOST_BYTES:
                raise HTTPException(413, f"the body is larger than {MOST_BYTES:,} bytes; send fewer ids.")
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, limited, noted)
        finally:
            # Only paths that exist become labels: anybody can ask for others.
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self.counters.requests.labels(path, str(status)).inc()
            self.counters.seconds.labels(path).observe(time.perf_counter() - begin)


def _problem(status: int, sentence: object) -> JSONResponse:
    return JSONResponse({"detail": one_line(sentence)}, status)


async def _invalid(_: Request, problem: Exception) -> JSONResponse:
    """The first thing wrong with the parameters, in one sentence."""
    assert isinstance(problem, RequestValidationError)
    first = problem.errors()[0]
    parts = [str(part) for part in first["loc"][1:]]
    where = ".".join(part for part in parts if part.isidentifier() or part.isdecimal())  # no names of types
    if first["type"] == "json_invalid":
        return _problem(400, "the body is no JSON.")
    text = first["msg"].removeprefix("Value error, ")
    return _problem(422, f"{where + ': ' if where else ''}{text[:1].lower()}{text[1:]}.")


async def _failed(_: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, HTTPException)
    answer = _problem(problem.status_code, problem.detail)
    answer.headers.update(problem.headers or {})
    return answer


async def _refused(_: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, RefusedError)
    return _problem(problem.status, problem)


async def _unusable(_: Request, problem: Exception) -> JSONResponse:
    """The model itself is at fault, as with scores that are no numbers."""
    LOG.log(logging.ERROR, "%s", one_line(problem))
    return _problem(500, problem)
