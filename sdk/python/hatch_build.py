"""Puts the program `motu` into the wheel, where there is one to put.

It is the file that `MOTU_WHEEL_BINARY` names (none, if it is empty), or else what `make build` made in this tree. Without
either the wheel is pure Python, and the SDK uses the `motu` of the host.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[misc,type-arg,unused-ignore]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        named = os.environ.get("MOTU_WHEEL_BINARY")
        if named == "":
            return
        binary = Path(named) if named else Path(self.root).parents[1] / "target" / "release" / "motu"
        if not binary.is_file():
            if named:
                raise FileNotFoundError(f"MOTU_WHEEL_BINARY names {named}, which is no file")
            return
        # The program is in the directory of scripts: on the PATH of a virtual environment, and found
        # from beside the package without one.
        build_data["shared_scripts"] = {str(binary.resolve()): "motu"}
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
