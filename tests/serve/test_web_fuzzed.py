"""What the API says of itself is true of requests that schemathesis makes up from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from serving import serving
from small_model import model


def test_every_answer_is_as_described(tmp_path: Path) -> None:
    schemathesis: Any = pytest.importorskip("schemathesis")
    model("integer").save(tmp_path / "model")
    with serving(tmp_path / "model") as (url, _):
        tried = []
        for found in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
            operation = found.ok()
            tried.append(operation.label)
            for mode in schemathesis.GenerationMode:
                if operation.path in ("/health", "/metrics", "/card") and mode is not mode.POSITIVE:
                    continue  # there is nothing to get wrong

                @given(case=operation.as_strategy(generation_mode=mode))
                @settings(
                    max_examples=10, suppress_health_check=list(HealthCheck), phases=[Phase.generate], derandomize=True
                )
                def check(case: Any) -> None:
                    # All that stands in a URL is text, so there is little that could be of a wrong type.
                    left_out = [schemathesis.checks.negative_data_rejection] if case.method == "GET" else []
                    case.call_and_validate(excluded_checks=left_out)

                check()
    assert {"GET /recommend", "POST /recommend", "GET /similar", "GET /health"} <= set(tried)
