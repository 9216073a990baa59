#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the example model's files: a small byte-level BPE tokenizer and its configuration.

    pip install tokenizers==0.23.3 && python3 examples/model/train.py

There are no weights: the mocker only needs ids that decode to text, and the frontend what it needs
of any model. The tokenizer is trained on this repository's own text and on prose made here; the
same text gives the same files. The result is committed, so nobody has to run this.
"""
import json
import pathlib
import random
import subprocess

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VOCAB = 6144
CONTEXT = 32768
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
# The cut into words that Llama 3 uses: contractions, letters, at most three digits, blanks.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

NOUNS = """account agent answer apple archive article author baker bank basket bird boat book border
bottle branch bread bridge brother builder butter cable camera captain carpet castle cat chair
chapter child church city cloud coast coffee color company computer corner country cousin crowd
daughter day decision desert design doctor dog door dream driver economy editor engine evening event
example farmer father field finger fire fish flower forest friend garden glass government grain group
guest hammer hand harbor hat heart history hill horse hospital hour house idea island journey judge
kitchen knife lake lamp language law leaf lesson letter library light lion list machine manager map
market memory message metal minute mirror money month moon morning mother mountain music name nation
neighbor network newspaper night number ocean office orange order owner page painter paper parent
partner path patient pattern pencil people person picture piece place plan planet plant player poem
police pocket price problem process product question queen question queue rain reader reason record
request result river road robot room route rule sailor salt sand school science season secret sentence
server service shadow ship shop signal silence sister size snow soldier solution song sound space
spring star station stone storm story stranger street student summer sun surface system table task
teacher team telephone theory thing thought time token tool tower town traffic train tree trouble
truth uncle valley value village voice wall war water weather week wheel wind window winter woman word
work worker world writer year""".split()
VERBS = """accepts adds admires answers arrives asks avoids becomes begins believes borrows breaks brings
builds buys calls carries catches changes chooses cleans climbs closes collects compares considers
continues controls copies counts covers creates crosses cuts decides delivers describes designs draws
drives drops enjoys enters examines expects explains explores fails feels fills finds finishes follows
forgets gathers gives grows guides hears helps hides holds hopes imagines improves includes invites
joins keeps knows learns leaves lifts likes listens lives looks loses loves makes measures meets moves
needs notices offers opens orders paints passes pays plans plays prefers prepares presents prints
produces promises protects proves pulls pushes reaches reads receives records remembers repairs repeats
replaces reports requires returns runs saves says searches seems sells sends serves shares shows
sings sits sleeps solves speaks spends stands starts stays stops studies supports surprises takes talks
teaches tells thinks throws touches translates travels tries turns understands uses visits waits walks
wants warns washes watches wears wins wishes wonders works writes""".split()
ADJECTIVES = """ancient angry beautiful big black blue brave brief bright broken busy calm careful cheap clean clear
clever cold common complete complex correct curious dark deep different difficult dry early eastern
easy empty equal exact famous fast final fine foreign free fresh friendly full general gentle golden
good gray great green happy hard heavy helpful high honest hot huge hungry important interesting kind
large late lazy light local lonely long loud low lucky modern narrow natural necessary new nice
northern old open ordinary patient perfect plain pleasant poor possible private proud public quick
quiet rare ready real recent red rich round sad safe serious sharp short silent simple single slow
small soft southern special strange strong sudden sweet tall tired true useful usual warm weak western
white whole wide wild wise wonderful wooden wrong yellow young""".split()
ADVERBS = """again almost already always away badly certainly clearly early easily finally gently
hardly here immediately later never nearly now often once only perhaps quickly quietly rarely really
simply slowly sometimes soon still suddenly there today together tomorrow tonight usually very
yesterday""".split()
PLACES = """in on under over behind before near beyond inside outside above below between across
around through towards against along beside without within during after since until""".split()
LINKS = """and but because although while when if so unless whereas however therefore moreover
meanwhile instead otherwise then""".split()
ASIDES = ["of course", "for example", "in fact", "as a rule", "after all", "at first", "in general",
          "on the other hand", "to begin with", "in other words"]


def prose(rng, sentences):
    """Grammatical nonsense with the frequencies and the punctuation of plain English."""
    def thing():
        words = [rng.choice(["the", "a", "this", "that", "every", "their", "his", "her", "our", "my",
                             "one", "some", "no", "your"])]
        words += rng.sample(ADJECTIVES, rng.choice([0, 0, 1, 1, 2]))
        noun = rng.choice(NOUNS)
        words.append(noun + ("s" if rng.random() < 0.2 else ""))
        return " ".join(words)

    def clause():
        words = [thing(), rng.choice(VERBS), thing()]
        if rng.random() < 0.4:
            words.insert(1, rng.choice(ADVERBS))
        if rng.random() < 0.5:
            words += [rng.choice(PLACES), thing()]
        return " ".join(words)

    def sentence():
        text = clause()
        if rng.random() < 0.35:
            text += f", {rng.choice(LINKS)} {clause()}"
        if rng.random() < 0.1:
            text = f"{rng.choice(ASIDES)}, {text}"
        if rng.random() < 0.06:
            text += f" {rng.choice(['in', 'by', 'about', 'at'])} {rng.randint(1, 2030)}"
        if rng.random() < 0.05:
            text = f'"{text}," {rng.choice(["he", "she", "they", "I", "we"])} said'
        return text[0].upper() + text[1:] + rng.choice("......?!")

    for start in range(0, sentences, 5):
        yield " ".join(sentence() for _ in range(min(5, sentences - start))) + "\n\n"


def own_text():
    """What git tracks here, but for data and generated tables."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in sorted(names.stdout.split()):
        path = ROOT / name
        if path.suffix in {".md", ".h", ".c", ".py", ".yaml"} or path.name in {"LICENSE", "Makefile"}:
            if HERE not in path.parents and not name.startswith("crds/"):
                yield path.read_text(encoding="utf-8")


def train():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    texts = [*own_text(), *prose(random.Random(2026), 20000)]
    tok.train_from_iterator(texts, trainer)
    tok.add_special_tokens(SPECIAL)
    return tok


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, indent=1)
    (HERE / name).write_text(text + "\n", encoding="utf-8")


def main():
    tok = train()
    ids = {text: tok.token_to_id(text) for text in SPECIAL}
    assert tok.get_vocab_size() == VOCAB
    tok.save(str(HERE / "tokenizer.json"), pretty=False)
    write("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|pad|>",
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "chat_template": (HERE / "chat_template.jinja").read_text(encoding="utf-8"),
    })
    write("config.json", {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 128,
        "max_position_embeddings": CONTEXT,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-05,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": VOCAB,
    })
    write("generation_config.json", {
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
        "pad_token_id": ids["<|pad|>"],
    })


if __name__ == "__main__":
    main()
