"""`python -m shardir.backends.ipu.host_model` prints the folder of the model's headers.

g++ -std=c++17 -I "$(python -m shardir.backends.ipu.host_model)" program.cpp -o program
"""

from shardir.backends.ipu.host_model.compiler import include_folder

if __name__ == "__main__":
    print(include_folder())
