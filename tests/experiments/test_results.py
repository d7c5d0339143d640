"""Tables of recorded runs that are not what they should be."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.experiments.results import _COLUMNS, Results, Run
from evenhand.utils.errors import InputError


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    fields = _COLUMNS["runs.parquet"]
    row = {name: ["x" if pa.types.is_string(kind) else 0] for name, kind in fields.items()}
    table = pa.table({name: pa.array(row[name]).cast(kind) for name, kind in fields.items()})
    wrong = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"a\x80"))
    name = next(name for name, kind in fields.items() if pa.types.is_string(kind))
    pq.write_table(table.set_column(table.schema.get_field_index(name), name, wrong), tmp_path / "runs.parquet")
    with pytest.raises(InputError, match="is damaged: it is no such Parquet table; remove it to start over"):
        Results(tmp_path)


@pytest.mark.parametrize("value", [1e200, float("inf"), float("nan")])
def test_values_that_nothing_measures_are_damage(tmp_path: Path, value: float) -> None:
    run = Run("scoreboard", "demo", "iid", None, "ease", 1.0, "", "", {}, {}, {"ndcg@20": [value]})
    Results(tmp_path).add(run)
    with pytest.raises(InputError, match="a value of"):
        Results(tmp_path)
