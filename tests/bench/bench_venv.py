"""A Python with PyTorch for benchmarks: $GT_BENCH_VENV, by default build/bench-venv; made on first use."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def venv_python(*more):
    """more: other packages that the benchmark needs."""
    packages = ["torch", "numpy", *more]
    python = Path(os.environ.get("GT_BENCH_VENV", ROOT / "build" / "bench-venv")) / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", "import " + ", ".join(packages)], capture_output=True).returncode:
        subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return str(python)
