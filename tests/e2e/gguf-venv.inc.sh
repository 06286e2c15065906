# source gguf-venv.inc.sh WORK_DIR: sets $python_gguf, a Python with the gguf package and numpy.
python_gguf=$1/venv-gguf/bin/python
mkdir -p "$1"
(
    flock 9  # tests run in parallel
    if [ ! -x "$1/venv-gguf/bin/gguf-dump" ]; then
        python3 -m venv "$1/venv-gguf"
        "$1/venv-gguf/bin/pip" install --quiet gguf
    fi
) 9>"$1/venv-gguf.lock"
