"""The few commands `aws s3api …` of our documents, for machines without the AWS CLI.

python aws.py s3api list-objects-v2 --bucket orders --query 'Contents[].Key' --output text
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import boto3
import jmespath


def parameters(words: Sequence[str]) -> dict[str, Any]:
    """`--copy-source a/b --delete file://c` → CopySource, and Delete read from that file."""
    found: dict[str, Any] = {}
    for flag, text in zip(words[::2], words[1::2], strict=True):
        name = "".join(part.capitalize() for part in flag.removeprefix("--").split("-"))
        given = Path(text[7:]).read_text() if text.startswith("file://") else text
        found[name] = json.loads(given) if given.startswith("{") else given
    return found


def answer(operation: str, given: dict[str, Any]) -> Any:
    """All pages of it, with times as text."""
    client = boto3.client("s3", endpoint_url=os.environ.get("AWS_ENDPOINT_URL"))
    method = operation.replace("-", "_")
    try:
        if client.can_paginate(method):
            found = client.get_paginator(method).paginate(**given).build_full_result()
        else:
            found = getattr(client, method)(**given)
    finally:
        client.close()
    return json.loads(json.dumps(found, default=lambda value: value.isoformat()))


def main(words: Sequence[str]) -> None:
    assert words[0] == "s3api", words
    given = parameters(words[2:])
    output, query = given.pop("Output", "json"), given.pop("Query", None)
    found = answer(words[1], given)
    if query is not None:
        found = jmespath.search(query, found)
    if output == "text":
        for row in found or []:
            print("\t".join(row))
    else:
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
