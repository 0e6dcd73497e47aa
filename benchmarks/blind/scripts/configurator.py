"""
Poor Man's Configurator. Not a module: run it with exec() from a script whose settings are plain globals:

$ python sampler.py config/some_file.py --batch_size=8 --dtype=bfloat16

A bare argument is a Python file that is exec'ed over the globals; --name=value overrides one global,
which has to exist already and keeps its type.
"""
import sys
from ast import literal_eval

for arg in sys.argv[1:]:
    if '=' not in arg:
        assert not arg.startswith('--'), f"write --name=value, not {arg}"
        print(f"Overriding config with {arg}:")
        with open(arg) as f:
            exec(f.read())
    else:
        assert arg.startswith('--')
        key, val = arg.split('=', 1)
        key = key[2:]
        if key not in globals():
            raise ValueError(f"Unknown config key: {key}")
        try:
            attempt = literal_eval(val)  # bool, number, ...
        except (SyntaxError, ValueError):
            attempt = val  # a plain string
        assert type(attempt) == type(globals()[key]), f"{key} has to be a {type(globals()[key]).__name__}"
        print(f"Overriding: {key} = {attempt}")
        globals()[key] = attempt
