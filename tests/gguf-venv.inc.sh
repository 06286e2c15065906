# Sourced with the folder for work: $python_gguf is a Python that has the gguf package and numpy.
python_gguf=$1/venv-gguf/bin/python
(
    flock 9  # several tests may want it at once
    if [ ! -x "$1/venv-gguf/bin/gguf-dump" ]; then
        python3 -m venv "$1/venv-gguf"
        "$1/venv-gguf/bin/pip" install --quiet gguf
    fi
) 9>"$1/venv-gguf.lock"
