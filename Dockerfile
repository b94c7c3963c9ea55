# shardir with the examples and MPI.
#
#   docker build -t shardir .
#   docker run --rm shardir                     # the example of handwritten digits
#   docker run --rm -it shardir python          # an interpreter
#
# A program of the current folder in two processes:
#
#   docker run --rm -v "$PWD:/programs" -w /programs shardir mpiexec -n 2 python train.py
FROM python:3.12-slim-bookworm

# The compiler builds the native tier of dispatch (backends/_native.c) during the installation.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/shardir
COPY . .

# The extra `mpi` installs an MPI library and mpi4py, the extra `demo` the digits of the example.
RUN pip install --no-cache-dir --editable '.[demo,mpi]'

# Compiled kernels are cached in the home folder of the user.
RUN useradd --create-home user
USER user

CMD ["python", "examples/digits.py"]
