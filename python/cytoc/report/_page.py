# SPDX-License-Identifier: Apache-2.0
"""The page: style, data, the library that lays graphs out, and page.js, which draws all of it, in one file.

In:  what _collect.py gathered, with the advice; page.css and page.js beside this file. The layout is dagre's, as netron ships it: the
     wheel has the file in vendor/, a checkout takes that of the installed package netron. Out: HTML that asks for nothing else.
"""
from __future__ import annotations

import html
import importlib.util
import json
import os
from typing import Any, Dict, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
LICENCE = "/* dagre, Copyright (c) 2012-2014 Chris Pettitt; as part of Netron, Copyright (c) Lutz Roeder. MIT licence. */\n"
EXPORT = "export const { layout, Graph } = dagre;"

TEMPLATE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>%(title)s</title>
<link rel="icon" href="data:,">
<style>
%(style)s</style></head>
<body><div id="page"></div>
<noscript>This page draws itself with JavaScript, which is off.</noscript>
<script type="application/json" id="data">%(data)s</script>
<script>
%(layout)s</script>
<script>
%(script)s</script>
</body></html>
"""


def _read(*path: str) -> str:
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def dagre() -> Optional[str]:
    """The library as a plain script that defines `dagre`; None: it is not here."""
    found = importlib.util.find_spec("netron")
    folders = [os.path.join(HERE, "vendor")] + (list(found.submodule_search_locations or []) if found else [])
    for folder in folders:
        try:
            text = _read(folder, "dagre.js")
        except OSError:
            continue
        if EXPORT in text:
            return LICENCE + text.replace(EXPORT, "") + "\n"
    return None


def page(data: Dict[str, Any]) -> str:
    layout = dagre()
    if layout is None:
        data["notes"].append("the graph cannot be laid out: pip install netron, whose layout is used")
    # a text of the model must not end the script that holds it
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, default=str).replace("<", "\\u003c")
    return TEMPLATE % {"title": html.escape("%s: cytoc report" % data["model"]["file"]), "style": _read(HERE, "page.css"), "data": text,
                       "layout": layout or "", "script": _read(HERE, "page.js")}
