"""A server that speaks S3, with one bucket; `pip install moto[s3] flask flask-cors` for the tests that need it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyarrow import fs

BUCKET = "shop"


class ObjectStore:
    def __init__(self, place: str) -> None:
        self._options = f"?endpoint_override={place}&scheme=http&region=us-east-1"
        self._system: Any = fs.S3FileSystem(
            endpoint_override=place, scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        self._system.create_dir(BUCKET)

    def uri(self, path: str, bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{path}{self._options}"

    def put(self, source: Path, path: str) -> None:
        """A file, or all files of a folder."""
        fs.copy_files(str(source), f"{BUCKET}/{path}", destination_filesystem=self._system)

    def remove(self, path: str) -> None:
        self._system.delete_file(f"{BUCKET}/{path}")


@contextmanager
def running_store() -> Iterator[ObjectStore]:
    module = pytest.importorskip("moto.server", reason="needs moto[s3], flask and flask-cors")
    server = module.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_EC2_METADATA_DISABLED": "true"}
    try:
        with patch.dict(os.environ, keys):
            host, port = server.get_host_and_port()
            yield ObjectStore(f"{host.replace('0.0.0.0', '127.0.0.1')}:{port}")
    finally:
        server.stop()
