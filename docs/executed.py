"""A Sphinx extension: pages whose code runs when the site is built, in a process of their own.

`executed_pages` names them. Below each block of Python stands what it printed. Files that the
program writes lie beside the site's pages.
"""

import json
import subprocess
import sys
from typing import Any

from docutils import nodes
from sphinx.errors import ExtensionError

LIMIT = 600  # seconds for a page
PROGRAM = """
import contextlib, io, json, sys
page, blocks = json.load(sys.stdin)
sys.argv = [page]
names, printed = {"__name__": "__main__"}, []
for number, block in enumerate(blocks, 1):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    printed.append(output.getvalue())
print("\\n" + json.dumps(printed))
"""


def run(app: Any, tree: nodes.document) -> None:
    page = app.env.docname
    if page not in app.config.executed_pages:
        return
    blocks = [block for block in tree.findall(nodes.literal_block) if block["language"] == "python"]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([page, [block.astext() for block in blocks]]),
        stdout=subprocess.PIPE,
        text=True,
        cwd=app.outdir,
        timeout=LIMIT,
    )
    if ran.returncode != 0:
        raise ExtensionError(f"the code of the page {page!r} failed; its error stands above")
    for block, output in zip(blocks, json.loads(ran.stdout.splitlines()[-1]), strict=True):
        if output:
            shown = nodes.literal_block(output, output, language="text", classes=["output"])
            block.parent.insert(block.parent.index(block) + 1, shown)


def setup(app: Any) -> dict[str, bool]:
    app.add_config_value("executed_pages", [], "env")
    app.connect("doctree-read", run)
    return {"parallel_read_safe": True}
