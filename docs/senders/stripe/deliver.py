"""Deliver what Stripe would, signed by its library: deliver.py ID."""

import json
import sys
import urllib.request

import stripe

event = {"id": sys.argv[1], "object": "event", "type": "invoice.paid"}
body = json.dumps({**event, "data": {"object": {"id": "in_1", "customer": "cus_1"}}})
signature = stripe.WebhookSignature.generate_signature_header(body, "SECRET")
request = urllib.request.Request(
    "http://127.0.0.1:51313/v1/inlets/stripe",
    body.encode(),
    {"Content-Type": "application/json", "Stripe-Signature": signature},
)
with urllib.request.urlopen(request, timeout=30) as answer:
    print(answer.read().decode())
