#!/bin/sh
# Deliver what GitHub would: deliver.sh ID
set -eu
body='{"action": "opened", "repository": {"full_name": "octo/demo"}}'
signature=$(printf %s "$body" | openssl dgst -sha256 -hmac 'SECRET' | sed 's/.* //')
curl -sS --fail-with-body http://127.0.0.1:51313/v1/inlets/github \
    -H 'Content-Type: application/json' -H 'X-GitHub-Event: issues' \
    -H "X-GitHub-Delivery: $1" -H "X-Hub-Signature-256: sha256=$signature" -d "$body"
