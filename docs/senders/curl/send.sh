#!/bin/sh
# Ten forms of a body. Each request is repeated until it is answered, and stored once.
set -eu
cd "$(dirname "$0")"
url=http://127.0.0.1:51313/v1/topics/from.curl/records

send() {
    curl -sS --fail-with-body --retry 30 --retry-delay 1 --retry-all-errors -H @headers.txt \
        -H "Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)" "$@"
}

printf '{"n": 1}\n{"n": 2}\n' > two.ndjson

send --json '{"form": "json"}' "$url?body=value"
send -d 'plain text' "$url"
send -d colour=red -d size=7 "$url?body=value"
send --data-binary @two.ndjson -H 'Content-Type: application/octet-stream' "$url"
send -F colour=red -F file=@two.ndjson "$url?body=value&keep_headers=Content-Type"
send -X POST -T two.ndjson -H 'Content-Type: application/x-ndjson' "$url?body=items&key=/n"
gzip -c two.ndjson > two.ndjson.gz
send --data-binary @two.ndjson.gz -H 'Content-Encoding: gzip' "$url?body=lines"
send --json '[{"n": 3}, {"n": 4}]' "$url?body=items"
printf 'a line\nanother line\n' > lines.txt
send --data-binary @lines.txt -H 'Content-Type: text/plain' "$url?body=lines"
send -X POST -T lines.txt -H 'Transfer-Encoding: chunked' -H 'Content-Type: text/plain' "$url?body=lines"
