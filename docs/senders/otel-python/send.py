"""Send log records with OpenTelemetry's SDK: send.py COUNT."""

import sys
import time

from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

exporter = OTLPLogExporter(
    endpoint="http://127.0.0.1:51313/v1/inlets/otel-python/v1/logs",
    headers={"Authorization": "Bearer SECRET"},
    compression=Compression.Gzip,
    timeout=60,  # seconds that a batch is repeated
)
provider = LoggerProvider(Resource.create({"service.name": "shop"}))
provider.add_log_record_processor(BatchLogRecordProcessor(exporter, schedule_delay_millis=200))
logger = provider.get_logger("cellar")

for number in range(int(sys.argv[1])):
    logger.emit(
        body=f"bottle {number}",
        timestamp=time.time_ns(),
        severity_number=SeverityNumber.INFO,
        attributes={"number": number},
    )
    time.sleep(0.05)
provider.force_flush(60_000)
provider.shutdown()
