"""The last step of an image's build, run by the interpreter that the image keeps: compiles the modules, writes the
bill of materials, gives the interpreter of a capture its capability, gives Spark and its Java paths without versions,
and removes what only the build needs."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

from sbom import bill_of_materials

BUILD_ONLY = ("setuptools", "pip")
XATTR = "security.capability"
NET_RAW = 1 << 13
REVISION_2, EFFECTIVE = 0x02000000, 0x000001  # struct vfs_cap_data of linux/capability.h


def give_net_raw(interpreter: Path) -> None:
    """What `setcap cap_net_raw+ep` does."""
    os.setxattr(interpreter, XATTR, struct.pack("<5I", REVISION_2 | EFFECTIVE, NET_RAW, 0, 0, 0))


def name_spark(share: Path, installed: Path) -> None:
    """For `entrypoint`, and for the manifests of Spark's operators."""
    from lowmark.app.kafka.java import find_java, spark_java_home

    prefix = Path(sys.prefix)
    (prefix / "spark").symlink_to(installed / "pyspark")
    (prefix / "java").symlink_to(spark_java_home(find_java(), cache=share))
    shutil.copyfile(installed / "lowmark" / "__main__.py", share / "lowmark-job.py")


def main() -> None:
    (image,) = sys.argv[1:]
    installed = Path(sysconfig.get_path("purelib"))
    subprocess.run([sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", *BUILD_ONLY], check=True)
    share = Path(sys.prefix) / "share" / "lowmark"
    bill = bill_of_materials(f"lowmark-{image}", share)
    (share / "sbom.cdx.json").write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    if not compileall.compile_dir(installed, quiet=2, workers=0, maxlevels=20):
        print("some modules do not compile for this Python: they are data of packages", file=sys.stderr)
    if image == "job":
        name_spark(share, installed)
    else:
        give_net_raw(Path(sys.executable).resolve())


if __name__ == "__main__":
    main()
