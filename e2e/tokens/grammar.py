# SPDX-License-Identifier: Apache-2.0
"""Random templates over the language of chat templates, and variables for them.

Expressions are made with a wanted kind in mind, and now and then with another, so that most
templates render and some fail: both engines must then agree that they do.
"""

WORDS = ["", "a", "Hello", "hello world", "  pad ", "é", "ÀÉî ß", "x,y,,z", "naïve 👨‍👩‍👧", "ΑΣΟΣ ας", "1", "-7", "2.5",
         "it's", 'say "hi"', "a\nb\n\nc", "<tag> & 'q'", "%s|%d", "tab\there", "ǆ ŉ", "UPPER", "tItLe-case (x)",
         "\u2028line", "null", "dž\x7f"]
NAMES = ["s", "t", "n", "m", "f", "b", "none_value", "l", "ls", "ld", "d", "dn", "missing", "empty_list", "empty_dict"]
STRINGS, INTS, LISTS, DICTS = ["s", "t"], ["n", "m"], ["l", "ls", "ld", "empty_list"], ["d", "dn", "empty_dict"]


def variables(rng):
    word = lambda: rng.choice(WORDS)
    thing = lambda: rng.choice([word(), rng.randint(-9, 99), rng.choice([0.5, 1.0, -2.25, 1e20, 1e-7]), True, False,
                                None, [1, word()], {"k": word()}])
    return {
        "s": word(), "t": word(), "n": rng.randint(-20, 20), "m": rng.choice([0, 1, 2, 3, 7]),
        "f": rng.choice([0.0, 1.0, 2.5, -3.75, 1e16, 1.5e-5, 123456.789]), "b": rng.random() < 0.5, "none_value": None,
        "l": [rng.randint(-5, 9) for _ in range(rng.randint(0, 5))],
        "ls": [word() for _ in range(rng.randint(0, 4))],
        "ld": [{"role": rng.choice(["user", "tool", "assistant"]), "content": thing(), "i": i}
               for i in range(rng.randint(0, 4))],
        "d": {rng.choice(["z", "a", "k", "é", "items", "n1"]): thing() for _ in range(rng.randint(0, 4))},
        "dn": {"b": {"x": thing(), "y": [thing()]}, "a": word(), "list": [thing() for _ in range(3)]},
        "empty_list": [], "empty_dict": {},
    }


class Maker:
    def __init__(self, rng):
        self.rng, self.locals, self.macros, self.loops, self.serial = rng, [], [], 0, 0

    def pick(self, *makers):
        return self.rng.choice(makers)()

    def quoted(self, text):
        quote = self.rng.choice("'\"")
        body = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace(quote, "\\" + quote)
        return quote + body + quote

    # --- expressions ---

    def expr(self, depth, kind=None):
        rng = self.rng
        kind = kind or rng.choice(["str", "str", "int", "float", "bool", "list", "dict", "any"])
        if rng.random() < 0.04:
            kind = rng.choice(["str", "int", "float", "bool", "list", "dict", "any"])
        if depth <= 0:
            return self.leaf(kind)
        return getattr(self, "make_" + kind)(depth - 1)

    def leaf(self, kind):
        rng = self.rng
        if self.locals and rng.random() < 0.25:
            return rng.choice(self.locals)
        if kind == "str":
            return rng.choice([rng.choice(STRINGS), self.quoted(rng.choice(WORDS))])
        if kind == "int":
            return rng.choice([rng.choice(INTS), str(rng.randint(0, 12))])
        if kind == "float":
            return rng.choice(["f", "2.5", "0.1", "1e3", "1.0", "10.0"])
        if kind == "bool":
            return rng.choice(["b", "true", "false", "True", "False"])
        if kind == "list":
            return rng.choice([*LISTS, "[]", "[1, 'a', none]", "(1, 2)", "('x',)", "range(4)"])
        if kind == "dict":
            return rng.choice([*DICTS, "{}", "{'a': 1, 'b': [2]}", "{1: 'x', 'y': none}"])
        return rng.choice([*NAMES, "none", "None", "loop.index" if self.loops else "n"])

    def make_str(self, d):
        e, rng = self.expr, self.rng
        return self.pick(
            lambda: self.leaf("str"),
            lambda: f"{e(d, 'str')} ~ {e(d)}", lambda: f"({e(d, 'str')} + {e(d, 'str')})",
            lambda: f"{self.primary(d, 'str')}.{self.str_method(d)}", lambda: f"{self.primary(d, 'str')}.{self.str_method(d)}",
            lambda: f"{self.primary(d, 'str')}|{self.str_filter(d)}", lambda: f"{self.primary(d)}|{self.str_filter(d)}",
            lambda: f"{self.primary(d, 'str')}[{self.subscript(d)}]",
            lambda: f"{rng.choice(STRINGS)}[{self.slice(d)}]",
            lambda: f"({e(d, 'list')}|join({e(0, 'str')}))", lambda: f"{self.primary(d, 'list')}|map('string')|join(', ')",
            lambda: f"({e(d, 'str')} if {e(d, 'bool')} else {e(d, 'str')})", lambda: f"({e(d, 'str')} if {e(d, 'bool')})",
            lambda: f"{self.primary(d)}|tojson", lambda: f"{self.primary(d)}|tojson(indent={rng.choice([0, 2, 4])})",
            lambda: f"{self.primary(d)}|tojson(ensure_ascii={rng.choice(['true', 'false'])})",
            lambda: f"({e(d, 'str')} * {rng.randint(0, 3)})", lambda: self.formatted(d),
            lambda: f"({e(d)} or {e(d, 'str')})", lambda: f"({e(d)} and {e(d, 'str')})",
            lambda: self.macro_call(d), lambda: "strftime_now('%d %b %Y')",
            lambda: f"{self.primary(d)}|default({e(0, 'str')})", lambda: f"missing|default({e(d)}, true)")

    def formatted(self, d):
        e, rng = self.expr, self.rng
        return self.pick(
            lambda: f"('%s and %s' % ({e(d)}, {e(d)}))", lambda: f"('%{rng.choice(['', '5', '-6', '05', '+'])}d' % {e(d, 'int')})",
            lambda: f"('%.{rng.randint(0, 3)}f' % {e(d, 'float')})", lambda: f"('%r' % ({e(d)},))",
            lambda: f"('{{}}-{{}}'.format({e(d)}, {e(d)}))", lambda: f"'{{0:>{rng.randint(1, 9)}}}'.format({e(d, 'str')})",
            lambda: f"'{{x}}:{{y:.2f}}'.format(x={e(d)}, y={e(d, 'float')})", lambda: f"('%s: %s'|format({e(d)}, {e(d)}))",
            lambda: f"'{{:{rng.choice(['d', '05d', ',', 'x', '+', '^8'])}}}'.format({e(d, 'int')})",
            lambda: f"('%(a)s' % {e(d, 'dict')})", lambda: f"('%5s|%-5s|%x' % ({e(d, 'str')}, {e(d, 'str')}, {e(d, 'int')}))")

    def str_method(self, d):
        e, rng = self.expr, self.rng
        name = rng.choice(["upper", "lower", "title", "capitalize", "strip", "lstrip", "rstrip", "swapcase", "isdigit",
                           "isalpha", "isspace", "isupper", "islower", "isalnum", "splitlines", "split"])
        return self.pick(
            lambda: f"{name}()", lambda: f"{rng.choice(['strip', 'lstrip', 'rstrip', 'split', 'rsplit'])}({e(0, 'str')})",
            lambda: f"replace({e(0, 'str')}, {e(d, 'str')})", lambda: f"replace('', {e(0, 'str')}, {rng.randint(-1, 3)})",
            lambda: f"{rng.choice(['startswith', 'endswith', 'count', 'find', 'rfind', 'partition', 'rpartition', 'removeprefix', 'removesuffix'])}({e(0, 'str')})",
            lambda: f"{rng.choice(['split', 'rsplit'])}({self.quoted(rng.choice([',', ' ', 'a', 'l']))}, {rng.randint(-1, 2)})",
            lambda: f"{rng.choice(['split', 'rsplit'])}(none, {rng.randint(0, 2)})",
            lambda: f"{rng.choice(['center', 'ljust', 'rjust', 'zfill'])}({rng.randint(0, 12)})",
            lambda: f"startswith(('a', {e(0, 'str')}))", lambda: f"find({e(0, 'str')}, {rng.randint(-3, 4)})",
            lambda: f"join({e(d, 'list')})", lambda: f"splitlines({rng.choice(['true', 'false'])})")

    def str_filter(self, d):
        e, rng = self.expr, self.rng
        return self.pick(
            lambda: rng.choice(["upper", "lower", "title", "capitalize", "trim", "string", "length", "first", "last",
                                "reverse", "list", "int", "float", "wordless" if rng.random() < 0.02 else "trim"]),
            lambda: f"replace({e(0, 'str')}, {e(0, 'str')})", lambda: f"indent({rng.randint(0, 4)}{rng.choice(['', ', true', ', true, true', ', blank=true'])})",
            lambda: f"default({e(0)})", lambda: f"trim({e(0, 'str')})", lambda: f"int({rng.randint(0, 3)})",
            lambda: f"center({rng.randint(0, 9)})", lambda: f"replace({e(0, 'str')}, {e(0, 'str')}, {rng.randint(0, 2)})")

    def make_int(self, d):
        e, rng = self.expr, self.rng
        return self.pick(
            lambda: self.leaf("int"), lambda: f"({e(d, 'int')} {rng.choice(['+', '-', '*', '//', '%'])} {e(d, 'int')})",
            lambda: f"-{self.primary(d, 'int')}", lambda: f"{self.primary(d)}|length", lambda: f"{self.primary(d, 'list')}|length",
            lambda: f"{self.primary(d, 'str')}|int", lambda: f"{self.primary(d, 'list')}|sum", lambda: f"(2 ** {rng.randint(0, 9)})",
            lambda: f"{self.primary(d, 'list')}|{rng.choice(['min', 'max', 'first', 'last'])}", lambda: f"{self.primary(d, 'int')}|abs",
            lambda: f"({e(d, 'int')} if {e(d, 'bool')} else {e(d, 'int')})", lambda: f"({e(d, 'bool')} + {e(d, 'int')})",
            lambda: rng.choice(["loop.index0", "loop.revindex", "loop.length", "loop.depth"]) if self.loops else "m",
            lambda: f"{self.primary(d, 'float')}|int", lambda: f"{self.primary(d, 'str')}.count({e(0, 'str')})")

    def make_float(self, d):
        e, rng = self.expr, self.rng
        return self.pick(
            lambda: self.leaf("float"), lambda: f"({e(d, 'int')} / {e(d, 'int')})", lambda: f"({e(d, 'float')} {rng.choice('+-*')} {e(d, 'int')})",
            lambda: f"({e(d, 'float')} {rng.choice(['//', '%', '/'])} {e(d, 'float')})", lambda: f"{self.primary(d, 'float')}|round",
            lambda: f"{self.primary(d, 'float')}|round({rng.randint(0, 3)}{rng.choice(['', ', ' + repr('floor'), ', ' + repr('ceil')])})",
            lambda: f"{self.primary(d, 'str')}|float", lambda: f"{self.primary(d, 'int')}|float", lambda: f"-{self.primary(d, 'float')}",
            lambda: f"(2 ** -{rng.randint(1, 3)})")

    def make_bool(self, d):
        e, rng = self.expr, self.rng
        return self.pick(
            lambda: self.leaf("bool"), lambda: f"not {e(d)}", lambda: f"({e(d)} {rng.choice(['and', 'or'])} {e(d)})",
            lambda: f"({e(d)} {rng.choice(['==', '!='])} {e(d)})", lambda: f"({e(d, 'int')} {rng.choice(['<', '<=', '>', '>='])} {e(d, 'float')})",
            lambda: f"({e(d, 'str')} {rng.choice(['<', '>='])} {e(d, 'str')})", lambda: f"({e(d, 'int')} < {e(d, 'int')} <= {e(d, 'int')})",
            lambda: f"({e(d)} {rng.choice(['in', 'not in'])} {e(d, 'list')})", lambda: f"({e(d, 'str')} in {e(d, 'str')})",
            lambda: f"({e(d, 'str')} in {e(d, 'dict')})",
            lambda: f"({self.primary(d)} is {rng.choice(['', 'not '])}{self.test(d)})",
            lambda: f"({self.primary(d)} is {rng.choice(['', 'not '])}{self.test(d)})",
            lambda: f"{self.primary(d, 'str')}.startswith({e(0, 'str')})",
            lambda: rng.choice(["loop.first", "loop.last", f"loop.changed({e(0)})"]) if self.loops else "b")

    def test(self, d):
        rng = self.rng
        return self.pick(
            lambda: rng.choice(["defined", "undefined", "none", "string", "number", "integer", "float", "mapping", "sequence",
                                "iterable", "boolean", "true", "false", "callable"]),
            lambda: rng.choice(["odd", "even", "lower", "upper"]), lambda: f"divisibleby {rng.randint(1, 3)}",
            lambda: f"{rng.choice(['eq', 'ne', 'equalto'])} {self.leaf(rng.choice(['str', 'int']))}",
            lambda: f"{rng.choice(['gt', 'ge', 'lt', 'le'])}({self.leaf('int')})", lambda: f"in {self.leaf('list')}",
            lambda: f"in({self.expr(d, 'list')})")

    def make_list(self, d):
        e, rng = self.expr, self.rng
        return self.pick(
            lambda: self.leaf("list"), lambda: "[" + ", ".join(e(d) for _ in range(rng.randint(0, 3))) + "]",
            lambda: "(" + "".join(e(d) + ", " for _ in range(rng.randint(1, 3))) + ")",
            lambda: f"({e(d, 'list')} + {e(d, 'list')})", lambda: f"{self.rng.choice(LISTS)}[{self.slice(d)}]",
            lambda: f"{self.primary(d, 'str')}.split({self.quoted(rng.choice([',', ' ', 'l']))})",
            lambda: f"{self.primary(d, 'list')}|{self.list_filter(d)}|list", lambda: f"{self.primary(d, 'list')}|{self.list_filter(d)}|list",
            lambda: f"{self.primary(d, 'list')}|sort{rng.choice(['', '(reverse=true)', '(true, true)'])}",
            lambda: f"ld|{self.dict_list_filter(d)}|list", lambda: f"{self.primary(d, 'dict')}.{rng.choice(['keys()', 'values()', 'items()'])}|list",
            lambda: f"{self.primary(d, 'dict')}|{rng.choice(['items', 'list', 'dictsort'])}|list", lambda: f"{self.primary(d, 'dict')}|dictsort",
            lambda: f"range({rng.randint(0, 6)}{rng.choice(['', f', {rng.randint(0, 9)}', f', {rng.randint(0, 9)}, 2'])})",
            lambda: f"{self.primary(d, 'dict')}.{rng.choice(['items', 'keys', 'values'])}()", lambda: f"({e(d, 'list')} * {rng.randint(0, 2)})",
            lambda: f"ld|groupby('role')")

    def list_filter(self, d):
        rng = self.rng
        return self.pick(
            lambda: rng.choice(["reverse", "unique", "list", "map('upper')", "map('string')", "map('length')", "select", "reject",
                                "map('default', 'x')", "map('int')", "map('tojson')", "map('trim')"]),
            lambda: f"{rng.choice(['select', 'reject'])}('{rng.choice(['odd', 'string', 'number', 'defined', 'none', 'mapping'])}')",
            lambda: f"select('{rng.choice(['gt', 'lt', 'eq', 'ne', 'in'])}', {self.expr(0)})", lambda: f"map('replace', {self.expr(0, 'str')}, '-')",
            lambda: f"{rng.choice(['batch', 'slice'])}({rng.randint(1, 3)}{rng.choice(['', ', ' + repr('f')])})|map('list')")

    def dict_list_filter(self, d):
        rng = self.rng
        return self.pick(
            lambda: f"map(attribute='{rng.choice(['role', 'content', 'i', 'nope', 'content.k', 'content.0'])}'{rng.choice(['', ', default=7'])})",
            lambda: f"{rng.choice(['selectattr', 'rejectattr'])}('{rng.choice(['role', 'content', 'i', 'nope'])}')",
            lambda: f"{rng.choice(['selectattr', 'rejectattr'])}('role', '{rng.choice(['equalto', 'ne', 'eq', '=='])}', 'user')",
            lambda: f"selectattr('{rng.choice(['content', 'nope'])}', '{rng.choice(['defined', 'string', 'none', 'mapping', 'undefined'])}')",
            lambda: f"sort(attribute='{rng.choice(['role', 'i', 'content'])}'{rng.choice(['', ', reverse=true'])})",
            lambda: "unique(attribute='role')", lambda: f"map(attribute='role')|{rng.choice(['unique', 'list', 'map(' + repr('upper') + ')'])}")

    def make_dict(self, d):
        e, rng = self.expr, self.rng
        key = lambda: self.pick(lambda: self.quoted(rng.choice(["a", "b", "z", "é"])), lambda: str(rng.randint(0, 3)), lambda: "true", lambda: "none")
        return self.pick(
            lambda: self.leaf("dict"), lambda: "{" + ", ".join(f"{key()}: {e(d)}" for _ in range(rng.randint(0, 3))) + "}",
            lambda: f"dict(a={e(d)}, b={e(d)})", lambda: f"dict({e(d, 'dict')}, k={e(d)})", lambda: f"{self.primary(d, 'dict')}.copy()",
            lambda: "dn.b", lambda: "dn['b']", lambda: "ld[0]", lambda: "(ld|first)")

    def make_any(self, d):
        e, rng = self.expr, self.rng
        return self.pick(
            lambda: self.leaf("any"), lambda: f"{self.primary(d, 'list')}[{self.subscript(d)}]", lambda: f"{self.primary(d, 'dict')}.{rng.choice(['a', 'b', 'z', 'k', 'x', 'n1'])}",
            lambda: f"{self.primary(d, 'dict')}[{e(0, 'str')}]", lambda: f"{self.primary(d, 'dict')}.get({e(0, 'str')}{rng.choice(['', ', 5'])})",
            lambda: f"({e(d)} if {e(d, 'bool')} else {e(d)})", lambda: f"({e(d)} {rng.choice(['+', '-', '*', '%', '//', '/', '~'])} {e(d)})",
            lambda: f"{self.primary(d)}|{rng.choice(['first', 'last', 'length', 'list', 'string', 'int', 'float', 'abs', 'upper', 'sort', 'sum', 'max', 'tojson', 'round', 'reverse|list'])}",
            lambda: f"{self.primary(d)}|default({e(d)}, {rng.choice(['true', 'false'])})",
            lambda: rng.choice(["loop.previtem", "loop.nextitem", "loop.cycle('x', 2, none)", "loop"]) if self.loops else "dn.list",
            lambda: f"{self.primary(d)}.{rng.choice(['role', 'content', 'x', 'upper', 'items'])} is defined",
            lambda: "ns.value" if "ns" in self.locals else "missing", lambda: f"[{e(d)}, {e(d)}]|{rng.choice(['first', 'last', 'max', 'min'])}")

    def primary(self, d, kind=None):
        text = self.expr(d, kind)
        return text if text.isidentifier() else f"({text})"

    def subscript(self, d):
        rng = self.rng
        return self.pick(lambda: str(rng.randint(-3, 4)), lambda: self.expr(0, "int"), lambda: f"-{rng.randint(1, 2)}")

    def slice(self, d):
        part = lambda: self.rng.choice(["", str(self.rng.randint(-4, 5)), "m", "none"])
        step = self.rng.choice(["", ":", ":2", ":-1", ":-2", ":1"])
        return f"{part()}:{part()}{step}"

    def macro_call(self, d):
        if not self.macros:
            return self.leaf("str")
        name, params = self.rng.choice(self.macros)
        args = [self.expr(d) for _ in range(self.rng.randint(0, params))]
        if self.rng.random() < 0.3 and len(args) < params:
            args.append(f"p{params - 1}={self.expr(0)}")
        if self.rng.random() < 0.05:
            args.append(self.rng.choice(["*l", "**d", "1, 2, 3", "zz=1"]))
        return f"{name}({', '.join(args)})"

    # --- statements ---

    def tag(self, text):
        minus = lambda: self.rng.choice(["", "", "", "-", "+"])
        return "{%" + minus() + f" {text} " + minus() + "%}"

    def body(self, depth, size=None):
        scope = len(self.locals), len(self.macros)
        text = "".join(self.statement(depth) for _ in range(size or self.rng.randint(1, 3)))
        del self.locals[scope[0]:], self.macros[scope[1]:]
        return text

    def text(self):
        return self.rng.choice(["", " ", "\n", "x", "  \n  ", "a\n", "\n\n", " b ", "é\n  ", "\t"])

    def name(self):
        self.serial += 1
        return f"v{self.serial}"

    def statement(self, depth):
        rng = self.rng
        if depth <= 0 or rng.random() < 0.35:
            return self.text() + self.printed() + self.text()
        makers = [self.s_if, self.s_for, self.s_for, self.s_set, self.s_set, self.s_set_block, self.s_macro, self.s_ns,
                  self.s_filter, self.s_with, self.s_call, self.s_generation, self.s_raw, self.s_recursive]
        return rng.choice(makers)(depth - 1) + self.text()

    def printed(self):
        minus = lambda: self.rng.choice(["", "", "", "-"])
        return "{{" + minus() + " " + self.expr(self.rng.randint(0, 3)) + " " + minus() + "}}"

    def s_if(self, d):
        text = self.tag(f"if {self.expr(2, 'bool')}") + self.text() + self.body(d)
        if self.rng.random() < 0.4:
            text += self.tag(f"elif {self.expr(2)}") + self.body(d)
        if self.rng.random() < 0.5:
            text += self.tag("else") + self.text() + self.body(d)
        return text + self.tag("endif")

    def s_for(self, d):
        rng = self.rng
        pair = rng.random() < 0.3
        names = [self.name() for _ in range(2 if pair else 1)]
        over = rng.choice([self.primary(1, "dict") + ".items()", self.primary(1, "dict") + "|items", "[(1, 2), ('a', 'b')]",
                           "ls|batch(2)"]) if pair else self.expr(2, rng.choice(["list", "list", "dict", "str"]))
        if not pair and " if " in over:
            over = f"({over})"
        test = f" if {names[0]} {rng.choice(['is defined', 'is string', '!= 1', ''])}" if rng.random() < 0.25 and not pair else ""
        text = self.tag(f"for {', '.join(names)} in {over}{test}")
        self.locals += names
        self.loops += 1
        text += self.text() + self.body(d)
        if rng.random() < 0.2:
            text += self.tag(f"if {self.expr(1, 'bool')}") + self.tag(rng.choice(["break", "continue"])) + self.tag("endif") + self.text()
        self.loops -= 1
        del self.locals[-len(names):]
        if rng.random() < 0.25:
            text += self.tag("else") + self.body(d)
        return text + self.tag("endfor")

    def s_recursive(self, d):
        name = self.name()
        return (self.tag(f"for {name} in [[1, [2, 'x']], {self.expr(1, 'list')}] recursive") +
                "{{ loop.depth }}{{ loop(" + name + ") if " + name + " is sequence and " + name + " is not string else " + name + " }}" +
                self.tag("endfor"))

    def s_set(self, d):
        name = self.rng.choice(self.locals) if self.locals and self.rng.random() < 0.3 else self.name()
        if name == "ns":
            name = self.name()
        if self.rng.random() < 0.12:
            other = self.name()
            text = self.tag(f"set {name}, {other} = {self.expr(1)}, {self.expr(1)}")
            self.locals += [name, other]
            return text
        text = self.tag(f"set {name} = {self.expr(3)}")
        self.locals.append(name)
        return text

    def s_set_block(self, d):
        name = self.name()
        text = self.tag(f"set {name}{self.rng.choice(['', '', ' | trim', ' | upper'])}") + self.body(d) + self.tag("endset")
        self.locals.append(name)
        return text

    def s_macro(self, d):
        name, params = self.name(), self.rng.randint(0, 3)
        given = [f"p{i}" + (f"={self.expr(1)}" if i == params - 1 and self.rng.random() < 0.5 else "") for i in range(params)]
        outer, loops = len(self.locals), self.loops
        self.locals += [f"p{i}" for i in range(params)]
        self.loops = 0
        special = self.rng.choice(["", "", "", "{{ varargs }}", "{{ kwargs|dictsort }}", "{{ caller() if caller else '-' }}"])
        text = self.tag(f"macro {name}({', '.join(given)})") + self.body(d) + special + self.tag("endmacro")
        del self.locals[outer:]
        self.loops = loops
        self.macros.append((name, params))
        return text

    def s_call(self, d):
        if not self.macros:
            return self.s_macro(d)
        return self.tag(f"call {self.macro_call(1)}") + self.body(d) + self.tag("endcall")

    def s_ns(self, d):
        if "ns" not in self.locals:
            self.locals.append("ns")
            return self.tag(f"set ns = namespace(value={self.expr(1)}, count=0)")
        return self.tag(f"set ns.{self.rng.choice(['value', 'other'])} = {self.expr(2)}")

    def s_filter(self, d):
        return self.tag(f"filter {self.rng.choice(['upper', 'trim', 'title', 'indent(2)', 'replace(' + repr('a') + ', ' + repr('b') + ')'])}") + \
            self.body(d) + self.tag("endfilter")

    def s_with(self, d):
        name, other = self.name(), self.name()
        text = self.tag(f"with {name} = {self.expr(1)}, {other} = {self.rng.choice([name, self.expr(1)])}")
        self.locals += [name, other]
        return text + self.body(d) + self.tag("endwith")

    def s_generation(self, d):
        return self.tag("generation") + self.text() + self.body(d) + self.text() + self.tag("endgeneration")

    def s_raw(self, d):
        return self.tag("raw") + self.rng.choice(["{{ x }}", " {% if %} ", "\n"]) + self.tag("endraw") + \
            self.rng.choice(["{# note #}", "{#- note -#}", " {# a\nb #}\n"])


def template(rng):
    return Maker(rng).body(2, rng.randint(1, 4))
