"""`evenhand serve` under load: requests a second, latencies, and swaps of the model, with wrk on the same machine.

    python benchmarks/serve.py MODEL … [--seconds 10] [--rate 200] [--swaps 20] [--peer PYTHON] [--json FILE]

`wrk` is a Debian package. For each model folder: as many requests as can be answered (`most`), a steady rate
(`steady`), and that rate while the folder is replaced again and again (`swaps`; a copy of it, in turn with one
whose numbers differ in the last bit). Users are drawn at random; a tenth of the requests posts a history and a tenth
asks for similar items. `--peer` is a Python with implicit, FastAPI and uvicorn: the same vectors through its
`recommend`, known users only, beside our server with known users only. wrk takes its part of the same cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh
from evenhand.models.vector_files import export
from evenhand.utils.errors import InputError

LUA = """
local paths = {}
for line in io.lines("@requests") do paths[#paths + 1] = line end
local seed = 1
function setup(thread) thread:set("seed", seed); seed = seed + 1 end
function init(args) math.randomseed(seed) end
function request()
  local line = paths[math.random(#paths)]
  local path, body = line:match("^(%S+)%s?(.*)$")
  if body ~= "" then
    return wrk.format("POST", path, {["Content-Type"] = "application/json"}, body)
  end
  return wrk.format("GET", path)
end
@delay
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\n@{"requests": %d, "seconds": %.3f, "p50_ms": %.2f, "p99_ms": %.2f, "max_ms": %.2f, "failed": %d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
"""  # noqa: E501
_PACED = "function delay() return -{mean} * math.log(1 - math.random()) end"
"""Waits of random length, as arrivals have them."""
_CONNECTIONS = 16


@dataclass(frozen=True)
class Server:
    """One that runs, and what it has used so far."""

    url: str
    process: subprocess.Popen[str]

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def wrk(server: Server, requests: Path, seconds: int, rate: int | None, folder: Path) -> dict[str, Any]:
    """One run; with a rate, each connection waits between its requests."""
    script = folder / "load.lua"
    mean = 0 if rate is None else 1000 * _CONNECTIONS / rate
    delay = "" if rate is None else _PACED.format(mean=f"{mean:.3f}")
    script.write_text(LUA.replace("@requests", str(requests)).replace("@delay", delay))
    command = ["wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s", "-s", str(script), server.url]
    before = server.cpu_seconds()
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(ended.stdout.rpartition("@")[2])
    used = 1000 * (server.cpu_seconds() - before) / found["requests"]
    return {
        "requests_per_second": round(found["requests"] / found["seconds"], 1),
        "server_cpu_ms": round(used, 2),
        **found,
    }


@contextmanager
def running(command: list[str], url: str | None = None) -> Iterator[Server]:
    """A server, until the block ends."""
    # One thread for a request on both sides; implicit asks for it, and evenhand does so by itself.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    )
    try:
        if url is None:
            assert process.stdout is not None
            text = ""
            while not text.endswith("}\n") or text.count("{") != text.count("}"):
                line = process.stdout.readline()
                if not line:
                    raise SystemExit("the server did not start")
                text += line
            url = json.loads(text)["url"]
        _wait_for(f"{url}/health")
        yield Server(url, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_for(url: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{url} does not answer")


def requests_of(model: Any, file: Path, others: bool, n: int = 5_000) -> Path:
    """Lines of a path and, where it is a POST, a body."""
    generator = np.random.default_rng(0)
    users, items = model.known.user_ids, model.known.item_ids
    lines = []
    for place in generator.integers(len(users), size=n):
        kind = generator.random()
        if others and kind < 0.1:
            history = items.take(model.known.row(int(place))[:50]).to_pylist()
            lines.append("/recommend " + json.dumps({"history": history}, separators=(",", ":")))
        elif others and kind < 0.2:
            lines.append(f"/similar?item={items[int(generator.integers(len(items)))].as_py()}")
        else:
            lines.append(f"/recommend?user={users[int(place)].as_py()}")
    file.write_text("\n".join(lines) + "\n")
    return file


def swapped(folder: Path, first: Any, second: Any, times: int, pause: float, url: str) -> int:
    """Replace the folder again and again, and wait until the new one answers; how often it did."""
    seen = 0
    for turn in range(times):
        before = _version(url)
        (second, first)[turn % 2].save(folder, force=True)
        for _ in range(300):
            if _version(url) != before:
                seen += 1
                break
            time.sleep(0.1)
        time.sleep(pause)
    return seen


def _version(url: str) -> str:
    with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
        return str(json.load(answer)["model"]["version"])


def measure(source: Path, given: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    model = eh.load(source)
    folder = scratch / "model"
    shutil.copytree(source, folder)
    known, mixed = (requests_of(model, scratch / f"{kind}.txt", kind == "mixed") for kind in ("known", "mixed"))
    found: dict[str, Any] = {"model": source.name, "users": model.known.n_users, "items": model.known.n_items}
    ours = [sys.executable, "-m", "evenhand", "serve", str(folder), "--port", "0", "--json"]
    with running(ours) as server:
        wrk(server, mixed, 2, None, scratch)
        found["most"] = wrk(server, mixed, given.seconds, None, scratch)
        found["steady"] = wrk(server, mixed, given.seconds, given.rate, scratch)
        found["most, known users"] = wrk(server, known, given.seconds, None, scratch)
        found["steady, known users"] = wrk(server, known, given.seconds, given.rate, scratch)
        if given.swaps:
            other = model.having(info={**model.info, "twin": True})
            seen: list[int] = []
            swaps = threading.Thread(
                target=lambda: seen.append(swapped(folder, model, other, given.swaps, 0.5, server.url)), daemon=True
            )
            swaps.start()
            runs = []
            while swaps.is_alive():
                runs.append(wrk(server, mixed, 5, given.rate, scratch))
            found["swaps"] = {
                "swaps": seen[0],
                "requests": sum(run["requests"] for run in runs),
                "failed": sum(run["failed"] for run in runs),
                "worst_p99_ms": max(run["p99_ms"] for run in runs),
                "max_ms": max(run["max_ms"] for run in runs),
            }
        found["peak_memory_mb"] = server.peak_mb()
    if given.peer:
        found |= _beside(model, known, given, scratch)
    return found


def _beside(model: Any, known: Path, given: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    vectors, pairs = scratch / "vectors.npz", scratch / "known.npz"
    try:
        export(model, "npz", vectors)
    except InputError:
        return {}  # implicit has no such model
    np.savez(pairs, indptr=model.known.indptr, items=model.known.items)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).parent / "peers" / "implicit_server.py"
    command = [given.peer, str(script), str(vectors), str(pairs), str(port)]
    with running(command, f"http://127.0.0.1:{port}") as server:
        wrk(server, known, 2, None, scratch)
        return {
            "implicit, most": wrk(server, known, given.seconds, None, scratch),
            "implicit, steady": wrk(server, known, given.seconds, given.rate, scratch),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--swaps", type=int, default=20)
    parser.add_argument("--peer")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed; on Debian: apt-get install wrk")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}")
    rows = []
    for source in given.models:
        with tempfile.TemporaryDirectory() as scratch:
            rows.append(measure(source, given, Path(scratch)))
        for name, value in rows[-1].items():
            print(f"{name}: {value}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
