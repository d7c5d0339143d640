"""Writes sound inputs for every target; `python checks/fuzz/make_seeds.py` after a format has changed."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save

from checks.fuzz.command_seeds import command_seeds
from checks.fuzz.targets.target import SEEDS
from evenhand.audit.result import to_json
from evenhand.data.interactions import Interactions
from evenhand.experiments.results import COMPARISONS, MEASUREMENTS, RUNS, Comparison, Results, Run
from evenhand.models.blend_model import BlendModel
from evenhand.models.factors import FactorModel
from evenhand.models.item_weights import CountTable, DenseTable, ItemWeightModel, SparseTable
from evenhand.models.vector_files import export
from evenhand.testing import corner_cases

CSV = "user,item,rating,timestamp\n1,a,5,10\n1,b,3.5,11\n2,a,,12\n"
LISTS = "user,item,rank,score,name,seed\n1,1,1,0.9,x,0\n1,2,2,0.8,x,0\n2,1,1,0.7,y,0\n"
TEXTS: dict[str, dict[str, str]] = {
    "csv": {
        "plain.csv": CSV,
        "quoted.csv": 'user,item,rating\n"a,""b",1,2\n"c\nd",2,3\n',
        "dates.csv": "item,user,timestamp\n1,2,2020-01-01T00:00:00Z\n2,3,2020-01-02T03:04:05Z\n",
    },
    "tsv": {"plain.tsv": CSV.replace(",", "\t")},
    "dat": {"plain.dat": "1::10::5::100\n1::20::3::101\n2::10::4::102\n"},
    "jsonl": {
        "plain.jsonl": '{"user": 1, "item": "a", "rating": 5.0}\n{"user": 2, "item": "b", "rating": null}\n',
        "dates.jsonl": '{"user": "x", "item": 1, "timestamp": "2020-01-01 00:00:00", "more": {"a": [1]}}\n'
        '{"user": "y", "item": 2, "timestamp": "2020-01-02 00:00:00", "more": null}\n',
    },
    "ids": {"plain.jsonl": '{"user": 1, "title": "x"}\n{"user": 2, "title": null}\n'},
    "lists": {"plain.csv": LISTS},
    "candidates": {"plain.csv": LISTS.replace(",y,", ",x,")},
    "attributes": {"plain.csv": "user,rating\n1,f\n2,m\n3,\n"},
    "groups": {"plain.csv": "item,rating\n1,a\n2,a\n3,b\n4,b\n"},
    "titles-100k": {"u.item": "1|Toy (1995)|01-Jan-1995||x" + "|0" * 18 + "|1\n2|Caf\xe9|||" + "|1" * 19 + "\n"},
    "titles-1m": {"movies.dat": "1::Toy (1995)::Animation|Comedy\n2::Caf\xe9::Drama\n"},
    "adjacency": {"train.txt": "0 1 2 3\n1 2\n2\n"},
    "coat": {"train.ascii": "0 1 2 3\n4 5 0 0\n1 0 0 5\n"},
    "gates": {"one": "ohr@4>0.60", "two": "mine.ndcg@3 <= other.ndcg@4", "three": "0.1<popularity_lift@4"},
    "options": {
        "method": "auc-ns:alpha=0.7:ecdf=64:candidates=5",
        "mixed": "ips-cn@dns:smoothing=0.5",
        "rival": "ease:l2=300",
        "lengths": "5,10,20",
        "share": "0.2",
        "named": "mine=lists.csv",
    },
    "terminal": {
        "plain": "a system",
        "markup": "[red]x[/] [link=file:///x]y[/link]",
        "steering": "\x1b[31m\x9b\u202e\r",
    },
    "html": {
        "plain": "a title",
        "script": "</script><script>alert(1)</script>",
        "quote": "\" onload='x' -->\u2028",
    },
    "outlets": {"plain": "ohr@10>0.6 (mine)", "lines": "a\n::error::b\r%0A", "control": "\x00\x1b\ufffe]]>"},
    "model-card": {"plain": "films", "shell": "$(id); `id`", "lines": "a\n## Free\n<script>"},
    "written": {"plain": "a,b,c", "odd": 'a"b,c\nd,=1+1, x ,\t,007'},
    "requests": {
        "known": "GET /recommend?user=u00&k=3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "similar": "GET /similar?item=i01&k=2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "history": "POST /recommend HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
        'Content-Length: 33\r\n\r\n{"history": ["i01", "i02"],"k":3}',
        "health": "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    },
    "audit-command": {"odd": "\x1b[31m[/]<script>\u202e"},
}


def main() -> None:
    for name, files in TEXTS.items():
        for file, text in files.items():
            coding = "latin-1" if name.startswith("titles") else "utf-8"
            keep(f"{name}/{file}", text.encode(coding))
    keep("csv-gz/plain.csv.gz", gzip.compress(CSV.encode(), mtime=0))
    tables()
    models()
    documents()
    command_seeds(keep)


def keep(place: str, data: bytes) -> None:
    path = SEEDS / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def tables() -> None:
    log = pa.table(
        {
            "user": pa.array(["a", "b", "a"]).dictionary_encode(),
            "item": [1, 2, 3],
            "rating": [1.0, None, 3.0],
            "timestamp": pa.array([1, 2, 3], pa.timestamp("s")),
        }
    )
    sink = io.BytesIO()
    pq.write_table(log, sink, compression="zstd")
    keep("parquet/plain.parquet", sink.getvalue())
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, log.schema) as writer:
        writer.write_table(log)
    keep("frame/plain.arrows", sink.getvalue())
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(zipfile.ZipInfo("ml-100k/u.data"), "1\t2\t3\t4\n1\t3\t5\t6\n2\t2\t1\t7\n")
    keep("zip/plain.zip", sink.getvalue())


def models() -> None:
    log = corner_cases()
    known = Interactions.from_pairs(
        log.users,
        log.items,
        user_ids=pa.array([f"u{n:02}" for n in range(9)]),
        item_ids=pa.array([f"i{n:02}" for n in range(12)]),
    )
    generator = torch.Generator().manual_seed(1)
    common = {
        "known": known,
        "seeds": (7,),
        "best": 0,
        "info": {"method": "dns", "encoder": {"name": "mf", "dim": 4}, "settings": {"lr": 0.01}},
        "metrics": {"5": {"precision": {"mean": 0.25, "std": 0.01, "values": [0.24, 0.26]}}},
        "history": ({"epoch": 1, "loss": [0.1]},),
    }
    weights = np.eye(12, k=1, dtype=np.float32)
    rows, columns = np.nonzero(weights)
    sparse = SparseTable(np.searchsorted(rows, np.arange(13)), columns.astype(np.int32), weights[rows, columns])
    made: dict[str, Any] = {
        "vectors": FactorModel(
            torch.randn(1, 9, 4, generator=generator), torch.randn(1, 12, 4, generator=generator), **common
        ),
        "dense": ItemWeightModel(DenseTable(torch.from_numpy(weights)), seen=known, **common),
        "sparse": ItemWeightModel(sparse, seen=known, **common),
        "counts": ItemWeightModel(CountTable(torch.arange(12).double()), seen=known, **common),
    }
    dense, counts = made["dense"], made["counts"]
    made["blend"] = BlendModel((dense, counts), (0.7, 0.3), **common)
    for kind, model in made.items():
        place = SEEDS / "model" / kind
        shutil.rmtree(place, ignore_errors=True)
        model.save(place)
        (place / "README.md").unlink()
        keep(f"model-{kind}/model.safetensors", (place / "model.safetensors").read_bytes())
    vectors = SEEDS / "model" / "vectors"
    for target, source in {
        "model-config/config.json": vectors / "config.json",
        "model-history/history.json": vectors / "history.json",
        "model-users/users.arrow": vectors / "users.arrow",
        "model-known/known.arrow": SEEDS / "model" / "sparse" / "known.arrow",
    }.items():
        keep(target, source.read_bytes())
    export(made["vectors"], "npz", vectors / "x.npz")
    keep("vectors-npz/plain.npz", (vectors / "x.npz").read_bytes())
    (vectors / "x.npz").unlink()
    # Users and items in one file, so that it can stand for either.
    both, sides = pa.concat_arrays([known.user_ids, known.item_ids]), made["vectors"].vectors
    flat = pa.array(torch.cat([side[0] for side in sides]).numpy().ravel())
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": both, "vector": pa.FixedSizeListArray.from_arrays(flat, 4)}), sink)
    keep("vectors-parquet/users.parquet", sink.getvalue())
    identity = {"seeds": [0], "settings": {"lr": 0.1}}
    document = {"format": 1, "identity": identity, "facts": {"epoch": 3}}
    keep(
        "checkpoint/plain.safetensors",
        save({"step": torch.tensor([1, 2])}, metadata={"evenhand": json.dumps(document)}),
    )


def documents() -> None:
    from checks.fuzz.targets.documents import small_audit

    keep("baseline/audit.json", json.dumps(to_json(small_audit()), allow_nan=False).encode())
    entries = {}
    for place, method in enumerate(("auc-ns", "dns")):
        values = [0.3 + 0.01 * place, 0.31, 0.29]
        entries[method] = {
            "method": method,
            "encoder": {"dim": 32},
            "training": {"epochs": 2, "batch": 64, "lr": 0.01, "weight_decay": 0.0, "milestones": [1]},
            "sampler": {"kind": "UniformSampler"},
            "objective": {"kind": "BPR"},
            "source": "by hand",
            "command": "evenhand reproduce overall",
            "hardware": "none",
            "versions": {"evenhand": "0", "torch": "0", "device": "none"},
            "seconds": 1.0,
            "trained_together": 1,
            "chosen_epochs": [1, 2, 2],
            "metrics": {f"{m}@5": values for m in ("precision", "recall", "f1", "ndcg", "ohr", "ocr", "uhr", "ucr")},
        }
    identity = {
        "part": "overall",
        "dataset": "ml-100k",
        "encoder": "mf",
        "protocol": "paper",
        "settings": "paper",
        "seeds": 3,
        "ks": [5],
        "epochs": 2,
    }
    with tempfile.TemporaryDirectory() as name:
        results = Results(Path(name))
        for label, entry in entries.items():
            columns = {key: entry.pop(key) for key in ("seconds", "command", "hardware", "versions")}
            measured = {"epoch": entry.pop("chosen_epochs"), **entry.pop("metrics")}
            where = ("overall-ml-100k-mf-paper-paper", "ml-100k", "paper", "mf", label)
            results.add(Run(*where, **columns, details={"identity": identity, **entry}, measured=measured))
        gap = (0.01, 0.0, 0.02, 0.04)
        others = [(metric, 5, *gap) for metric in ("precision", "ndcg", "ohr")]
        where = ("overall-ml-100k-mf-paper-paper", "ml-100k", "paper", "mf", "auc-ns", "dns", "users")
        results.comparisons = [Comparison(*where, *one) for one in others]
        results.write()
        files = [Path(name) / table for table in (RUNS, MEASUREMENTS, COMPARISONS)]
        rows = [pq.read_table(file).to_pylist() for file in files]
        keep("record/overall.json", json.dumps(rows).encode())
        keep("results-parquet/runs.parquet", files[0].read_bytes())
    sink = io.BytesIO()
    np.savez_compressed(sink, **{"5/0/users": np.arange(3), "5/0/value.precision": np.array([0.1, 0.2, 0.3])})
    keep("people/plain.npz", sink.getvalue())


if __name__ == "__main__":
    main()
