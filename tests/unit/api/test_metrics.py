"""The text of metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from seb_appliance.api.routes.manage.health import Sample, exposition


def test_samples_of_one_name_stand_together():
    text = exposition(
        [
            Sample("a_total", "How\nmany.", "counter", 1, {"kind": "x"}),
            Sample("b", "Now.", "gauge", 2.5),
            Sample("a_total", "How\nmany.", "counter", 3, {"kind": 'y"\\\n'}),
        ]
    ).decode()
    assert text == (
        "# HELP a_total How\\nmany.\n# TYPE a_total counter\n"
        'a_total{kind="x"} 1\na_total{kind="y\\"\\\\\\n"} 3\n'
        "# HELP b Now.\n# TYPE b gauge\nb 2.5\n"
    )
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["a"].samples[1].labels == {"kind": 'y"\\\n'}
    assert families["b"].samples[0].value == 2.5
