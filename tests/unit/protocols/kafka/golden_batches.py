"""Record batches as clients have sent them, and a frame of LZ4 as older clients make it.

librdkafka 2.16.1 (`confluent-kafka`) sent its ones to its own mock broker; kafka-python 3.0.12 and
aiokafka 0.14.0 made theirs with python-snappy 0.7.3, lz4 4.4.5, zstandard 0.25.0, cramjam 2.14.0.
"""

from __future__ import annotations

import base64
import zlib
from typing import Final

# Each holds three records with the key "key", the value "value-N " 20 times, and headers: in the
# second record h=1, n=null, h=2.
LIBRDKAFKA: Final = {
    "none": base64.b64decode(
        "AAAAAAAAAAAAAAJAAAAAAALMgsizAAAAAAACAAABi8/laAAAAAGLz+VoAgAAAAAWVKEIAAAAAAAAAAAAA9QCAA"
        "AABmtlecACdmFsdWUtMCB2YWx1ZS0wIHZhbHVlLTAgdmFsdWUtMCB2YWx1ZS0wIHZhbHVlLTAgdmFsdWUtMCB2"
        "YWx1ZS0wIHZhbHVlLTAgdmFsdWUtMCB2YWx1ZS0wIHZhbHVlLTAgdmFsdWUtMCB2YWx1ZS0wIHZhbHVlLTAgdm"
        "FsdWUtMCB2YWx1ZS0wIHZhbHVlLTAgdmFsdWUtMCB2YWx1ZS0wIADqAgACAgZrZXnAAnZhbHVlLTEgdmFsdWUt"
        "MSB2YWx1ZS0xIHZhbHVlLTEgdmFsdWUtMSB2YWx1ZS0xIHZhbHVlLTEgdmFsdWUtMSB2YWx1ZS0xIHZhbHVlLT"
        "EgdmFsdWUtMSB2YWx1ZS0xIHZhbHVlLTEgdmFsdWUtMSB2YWx1ZS0xIHZhbHVlLTEgdmFsdWUtMSB2YWx1ZS0x"
        "IHZhbHVlLTEgdmFsdWUtMSAGAmgCMQJuAQJoAjLUAgAEBAZrZXnAAnZhbHVlLTIgdmFsdWUtMiB2YWx1ZS0yIH"
        "ZhbHVlLTIgdmFsdWUtMiB2YWx1ZS0yIHZhbHVlLTIgdmFsdWUtMiB2YWx1ZS0yIHZhbHVlLTIgdmFsdWUtMiB2"
        "YWx1ZS0yIHZhbHVlLTIgdmFsdWUtMiB2YWx1ZS0yIHZhbHVlLTIgdmFsdWUtMiB2YWx1ZS0yIHZhbHVlLTIgdm"
        "FsdWUtMiAA"
    ),
    "gzip": base64.b64decode(
        "AAAAAAAAAAAAAAB/AAAAAAJjdYiXAAEAAAACAAABi8/laAAAAAGLz+VoAgAAAAAfkUDIAAAAAAAAAAAAAx+LCA"
        "AAAAAAAAO7wsTAwMCWnVp5gKksMac0VddAYbDSDK+YGJiYkN1qqDBYaTamDCZDpjxGIGV0hYmBhQXZ2UYKg5Vm"
        "AADON5ZZDwIAAA=="
    ),
    "snappy": base64.b64decode(
        "AAAAAAAAAAAAAACLAAAAAAJb2p51AAIAAAACAAABi8/laAAAAAGLz+VoAgAAAAAw2HSgAAAAAAAAAAAAA48ESN"
        "QCAAAABmtlecACdmFsdWUtMCD+CAD+CABeCAAUAOoCAAICLqwAADENrP4IAP4IAEYIAEQGAmgCMQJuAQJoAjLU"
        "AgAEBAY9YwAyDbf+CAD+CABGCAAAAA=="
    ),
    "lz4": base64.b64decode(
        "AAAAAAAAAAAAAACMAAAAAAJqIUL5AAMAAAACAAABi8/laAAAAAGLz+VoAgAAAAArn3cYAAAAAAAAAAAAAwQiTR"
        "hgQIJMAAAA/wTUAgAAAAZrZXnAAnZhbHVlLTAgCACFaADqAgACAqwAEzGsAA8IAH/4AgYCaAIxAm4BAmgCMtQC"
        "AAQEtwATMrcADwgAe1BlLTIgAAAAAAA="
    ),
    "zstd": base64.b64decode(
        "AAAAAAAAAAAAAAB+AAAAAAKFG85cAAQAAAACAAABi8/laAAAAAGLz+VoAgAAAAAYQI6gAAAAAAAAAAAAAyi1L/"
        "0AWCUCANQC1AIAAAAGa2V5wAJ2YWx1ZS0wIADqAgACAjEGAmgCMQJuAQJoAjLUAgAEBDIABwAPQAGyW2e4fQAK"
        "kN2X4crKqBIG"
    ),
}
# The same, but the second record has the header h=1 alone.
PYTHON: Final = {
    "kafka-python gzip": base64.b64decode(
        "AAAAAAAAAAAAAAB5AAAAAAL/ANc8AAEAAAACAAABi8/laAAAAAGLz+VoAv//////////////////AAAAAx+LCA"
        "DhfwdrAv+7wsTAwMCWnVp5gKksMac0VddAYbDSDHeYGJiYkN1qqDBYaSamDCbDK0wMLCzI7jVSGKw0AwCRvpmr"
        "CAIAAA=="
    ),
    "kafka-python snappy": base64.b64decode(
        "AAAAAAAAAAAAAACYAAAAAAJrqTSmAAIAAAACAAABi8/laAAAAAGLz+VoAv//////////////////AAAAA4JTTk"
        "FQUFkAAAAAAQAAAAEAAABTiARI1AIAAAAGa2V5wAJ2YWx1ZS0wIP4IAP4IAF4IABQA3AIAAgIurAAAMQ2s/ggA"
        "/ggARggAJAICaAIx1AIABAQusAAAMg2w/ggA/ggARggAAAA="
    ),
    "kafka-python lz4": base64.b64decode(
        "AAAAAAAAAAAAAACMAAAAAAIVy/17AAMAAAACAAABi8/laAAAAAGLz+VoAv//////////////////AAAAAwQiTR"
        "hoQAgCAAAAAAAACUQAAAD/BNQCAAAABmtlecACdmFsdWUtMCAIAIVoANwCAAICrAATMawADwgAf6gCAmgCMdQC"
        "AAQEsAATMrAADwgAe1BlLTIgAAAAAAA="
    ),
    "kafka-python zstd": base64.b64decode(
        "AAAAAAAAAAAAAAB4AAAAAAKYdfxJAAQAAAACAAABi8/laAAAAAGLz+VoAv//////////////////AAAAAyi1L/"
        "1gCAHtAQBkAtQCAAAABmtlecACdmFsdWUtMCAA3AIAAgIxAgJoAjHUAgAEBDIABwAPQAGyOzMcPgAFyO7LcGVl"
        "VAkD"
    ),
    "aiokafka gzip": base64.b64decode(
        "AAAAAAAAAAAAAAB5/////wLbK7txAAEAAAACAAABi8/laAAAAAGLz+VoAv//////////////////AAAAAx+LCA"
        "DifwdrAv+7wsTAwMCWnVp5gKksMac0VddAYbDSDHeYGJiYkN1qqDBYaSamDCbDK0wMLCzI7jVSGKw0AwCRvpmr"
        "CAIAAA=="
    ),
    "aiokafka snappy": base64.b64decode(
        "AAAAAAAAAAAAAACY/////wJrqTSmAAIAAAACAAABi8/laAAAAAGLz+VoAv//////////////////AAAAA4JTTk"
        "FQUFkAAAAAAQAAAAEAAABTiARI1AIAAAAGa2V5wAJ2YWx1ZS0wIP4IAP4IAF4IABQA3AIAAgIurAAAMQ2s/ggA"
        "/ggARggAJAICaAIx1AIABAQusAAAMg2w/ggA/ggARggAAAA="
    ),
    "aiokafka lz4": base64.b64decode(
        "AAAAAAAAAAAAAACE/////wJHELmaAAMAAAACAAABi8/laAAAAAGLz+VoAv//////////////////AAAAAwQiTR"
        "hwQK1AAAAA/wTUAgAAAAZrZXnAAnZhbHVlLTAgCACFaADcAgACAqwALzEgCACFqAICaAIx1AIABASwAC8yIAgA"
        "gVBlLTIgAMXSuJoAAAAA"
    ),
    "aiokafka zstd": base64.b64decode(
        "AAAAAAAAAAAAAAB4/////wKYdfxJAAQAAAACAAABi8/laAAAAAGLz+VoAv//////////////////AAAAAyi1L/"
        "1gCAHtAQBkAtQCAAAABmtlecACdmFsdWUtMCAA3AIAAgIxAgJoAjHUAgAEBDIABwAPQAGyOzMcPgAFyO7LcGVl"
        "VAkD"
    ),
}
# Two records without key, 80,000 bytes of "0123456789abcdef" each, in blocks of 64 KiB that
# depend on each other. It is packed by zlib.
LINKED_LZ4: Final = zlib.decompress(
    base64.b64decode(
        "eJxjUfKVcHGIU2VkYPjPPeERJwMDA2PDI04DQyNjE1MzcwvLxKTklNQ0AYb/IxycCwAHiQwwoPg/kG3K+v0M4E"
        "BmAgXybAtyjdnKP4FsvTQCQQHg1FINTED8D/robn1+ACiZMoDA4/NpcQCUvYsz"
    )
)
