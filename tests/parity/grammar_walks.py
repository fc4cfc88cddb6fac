"""Random JSON Schemas, random answers that the masks allow under them, and what `jsonschema` (PyPI) says of these: each
finished answer must parse and be valid.

usage: grammar_walks.py GRAMMAR_WALK [SCHEMAS [SEED]]     or     grammar_walks.py GRAMMAR_WALK --list FILE
FILE names files {"schema": ...}, one a line, as those of JSONSchemaBench."""
import json
import random
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skip: python3-jsonschema is not installed")
    sys.exit(77)

ANSWERS = 12


def number_limits(r, kind):
    limits = {}
    if r.random() < 0.6:
        low, high = sorted((r.randint(-200, 200), r.randint(-200, 200)))
        if kind == "number" and r.random() < 0.5:
            low, high = low + r.choice((0.5, 0.25, 0.125, 0.1)), high + 1.75
        if r.random() < 0.7:
            limits[r.choice(("minimum", "exclusiveMinimum"))] = low
        if r.random() < 0.7:
            limits[r.choice(("maximum", "exclusiveMaximum"))] = high + 2
    elif kind == "integer" and r.random() < 0.3:
        limits["multipleOf"] = r.randint(1, 30)
    return limits


def text(r):
    schema = {"type": "string"}
    if r.random() < 0.3:
        schema["pattern"] = r.choice(("^[a-f]+$", "^\\d{2,4}-\\w*", "b", "^(x|yz){1,3}$", "[^\\s\"]$", "^$|\\\\"))
    elif r.random() < 0.3:
        schema["format"] = r.choice(("date", "time", "date-time", "uuid", "email", "ipv4", "hostname", "duration", "uri"))
        return schema
    if r.random() < 0.4:
        schema["minLength"] = r.randint(0, 5)
    if r.random() < 0.4:
        schema["maxLength"] = r.randint(8, 30)
    return schema


def array(r, depth):
    schema = {"type": "array"}
    if r.random() < 0.3:
        schema["prefixItems"] = [value(r, depth - 1) for _ in range(r.randint(1, 3))]
    if r.random() < 0.8:
        schema["items"] = value(r, depth - 1) if r.random() < 0.85 else False
    if r.random() < 0.4 and schema.get("items") is not False:
        schema["minItems"] = r.randint(0, 3)
    if r.random() < 0.4:
        schema["maxItems"] = r.randint(3, 6)
    return schema


def obj(r, depth):
    names = r.sample(["a", "b", "name", "x y", "k\"q", "\u00e9", "list", "aa"], r.randint(0, 5))
    schema = {"type": "object", "properties": {n: value(r, depth - 1) for n in names}}
    schema["required"] = [n for n in names if r.random() < 0.5]
    if r.random() < 0.5:
        schema["additionalProperties"] = r.choice((False, True, value(r, 0)))
    if r.random() < 0.2:
        schema["patternProperties"] = {r.choice(("^x", "^[ab]{2,3}$", "\\d")): value(r, 0)}
    if r.random() < 0.2:
        schema["minProperties"] = 1
    return schema


def value(r, depth):
    kinds = ["null", "boolean", "integer", "number", "string", "string", "enum", "const", "ref"]
    if depth > 0:
        kinds += ["array", "object", "object", "anyOf", "oneOf", "allOf", "types"] * 2
    kind = r.choice(kinds)
    if kind in ("integer", "number"):
        return dict(type=kind, **number_limits(r, kind))
    if kind == "string":
        return text(r)
    if kind == "enum":
        return {"enum": r.sample([None, True, 0, -3, 1.5, "a", "b\n\"", "\u20ac", [1, "x"], {"k": None}], r.randint(1, 5))}
    if kind == "const":
        return {"const": r.choice(["v", 7, False, [], {}])}
    if kind == "ref":
        return {"$ref": "#/$defs/" + r.choice(("tree", "short"))}
    if kind == "array":
        return array(r, depth)
    if kind == "object":
        return obj(r, depth)
    if kind == "anyOf":
        return {"anyOf": [value(r, depth - 1) for _ in range(r.randint(1, 3))]}
    if kind == "oneOf":
        return {"oneOf": [dict(obj(r, depth - 1), required=[n]) for n in r.sample("abcd", 2)]}
    if kind == "allOf":
        return {"allOf": [obj(r, depth - 1), obj(r, depth - 1)]}
    if kind == "types":
        return {"type": r.sample(["null", "boolean", "integer", "string", "array", "object"], 2)}
    return {"type": kind}


def random_schemas(n, seed):
    r = random.Random(seed)
    defs = {"short": {"type": "string", "maxLength": 3},
            "tree": {"type": "object", "required": ["v"], "additionalProperties": False, "properties": {
                "v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}}}
    return [dict(value(r, 3), **{"$defs": defs}) for _ in range(n)]


def main():
    program, rest = sys.argv[1], sys.argv[2:]
    if rest[:1] == ["--list"]:
        schemas = [json.load(open(path.strip()))["schema"] for path in open(rest[1])]
    else:
        schemas = random_schemas(int(rest[0]) if rest else 400, int(rest[1]) if len(rest) > 1 else 1)
    lines = "".join(json.dumps(s) + "\n" for s in schemas)
    run = subprocess.run([program, str(ANSWERS), "1"], input=lines, capture_output=True, text=True)
    assert run.returncode == 0, (run.returncode, run.stderr)
    results = [json.loads(line) for line in run.stdout.split("\n") if line]
    assert len(results) == len(schemas)
    refused, checked, wrong = 0, 0, 0
    for schema, answers in zip(schemas, results):
        if isinstance(answers, str):
            refused += 1
            continue
        try:
            cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
            validator = cls(schema, format_checker=cls.FORMAT_CHECKER)
        except Exception as e:
            print("not checked:", e)
            continue
        for answer in answers:
            checked += 1
            try:
                validator.validate(json.loads(answer))
            except (ValueError, jsonschema.ValidationError) as e:
                wrong += 1
                print("WRONG", json.dumps(schema)[:600], "\n  answer", answer[:300], "\n ", str(e).split("\n")[0][:300])
            except Exception as e:
                print("not checked:", str(e)[:100])
    print(f"{len(schemas)} schemas, {refused} refused, {checked} answers, {wrong} wrong")
    assert checked > 3 * len(schemas) or rest[:1] == ["--list"], "too few answers were finished"
    assert wrong == 0


main()
