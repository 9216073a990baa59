/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to token ids and back, as a model's tokenizer.json, tiktoken file or SentencePiece model defines
 * it.
 *
 * Gives the ids and the text that the `tokenizers` library gives with special-token addition off:
 * added and special tokens in the text are recognised, no BOS is put before it. Models: BPE, both
 * byte-level (GPT-2, Llama 3, Qwen) and with byte fallback (Llama 2, TinyLlama), Unigram (T5,
 * XLM-R) and WordPiece (BERT). A file that asks for anything else is refused with the name of the
 * field.
 *
 * A struct tokenizer is immutable and read by any number of threads. What encoding needs to write
 * lies in a struct tokenizer_scratch, one per thread. Pure: the file's text comes as an argument.
 *
 * Cost: encoding is O(n log n) for any input; words seen before come from a bounded cache in the
 * scratch. Decoding is a table look-up per token.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;
struct tokenizer;
struct tokenizer_scratch;
struct text_pieces;

enum {
    TOKENIZER_MAX_FILE = 64 << 20, /* bytes of tokenizer.json */
    TOKENIZER_MAX_VOCAB = 1 << 20, /* ids, added tokens included */
    TOKENIZER_MAX_ADDED = 1 << 16, /* added tokens */
    TOKENIZER_MAX_TEXT =
        16 << 20, /* bytes of one text to encode; the work takes up to 40 times that */
};

/* Growable list of ids. Embedded by value; zero-initialised is empty. */
struct token_ids {
    uint32_t *ptr;
    size_t len, cap;
};

void token_ids_done(struct token_ids *ids); /* frees; empty and usable again */
DEFINE_CLEANUP_EMBEDDED(struct token_ids, token_ids_done)
/* Room for @n more; returns where they go. Add what was written to len. */
uint32_t *token_ids_reserve(struct token_ids *ids, size_t n);
static inline void token_ids_push(struct token_ids *ids, uint32_t id)
{
    if (ids->len == ids->cap)
        (void)token_ids_reserve(ids, 1);
    ids->ptr[ids->len++] = id;
}

/* @json is the text of tokenizer.json; nothing of it is kept. -EINVAL malformed, -ENOTSUP asks for
 * what we do not do, -E2BIG over a limit. */
MUST_CHECK int tokenizer_load(struct tokenizer **ret, struct str json, struct err *e);
/*
 * What a model's folder has: its tokenizer, which is a tokenizer.json, a tiktoken file
 * (tiktoken.h) or a SentencePiece model (sentencepiece.h), and beside it config.json and tokenizer_config.json, which may be empty. Same errors.
 */
struct tokenizer_files {
    struct str tokenizer, config, tokenizer_config;
};
MUST_CHECK int tokenizer_load_files(struct tokenizer **ret, const struct tokenizer_files *f,
                                    struct err *e);
struct tokenizer *tokenizer_free(struct tokenizer *t);
DEFINE_CLEANUP(struct tokenizer *, tokenizer_free)

/* Working memory for one thread and this tokenizer, which it borrows: 1 MB, and a few more after texts
 * of up to 1 MB; what longer texts need is given back at once. */
struct tokenizer_scratch *tokenizer_scratch_new(const struct tokenizer *t);
struct tokenizer_scratch *tokenizer_scratch_free(struct tokenizer_scratch *s);
DEFINE_CLEANUP(struct tokenizer_scratch *, tokenizer_scratch_free)

/* Appends the ids of @text to @out. @s must come from this tokenizer. -EILSEQ when the text is not
 * UTF-8, -E2BIG when it is too long or too hard to split; @out is then as before. */
MUST_CHECK int tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s,
                                struct str text, struct token_ids *out, struct err *e);

/* The same for a text that falls into pieces (text_pieces.h), as far as it goes; a mark that is no token
 * is text. Nothing is cut off or filled up. */
MUST_CHECK int tokenizer_encode_pieces(const struct tokenizer *t, struct tokenizer_scratch *s,
                                       struct str text, const struct text_pieces *pieces,
                                       struct token_ids *out, struct err *e);

/* The same for a text that is embedded, as 1.x does it: neither cut off nor filled up by the file, and
 * with @special between the tokens of the file's post-processor. -ENOTSUP: we cannot tell which. */
MUST_CHECK int tokenizer_encode_embedded(const struct tokenizer *t, struct tokenizer_scratch *s,
                                         struct str text, bool special, struct token_ids *out,
                                         struct err *e);

/* Before it is shared: what the file says of truncation and padding does not count, as in 1.x. */
void tokenizer_leave_length(struct tokenizer *t);

/* What the file does to the ids of a whole text, from @before on: cuts them off or fills them up. */
void tokenizer_shape_ids(const struct tokenizer *t, struct token_ids *ids, size_t before);

/* And to those of @n texts that it is given at once, which may become as long as the longest; @ends says
 * where each of them ends. -E2BIG: that is more than @max ids; all are then as before. */
MUST_CHECK int tokenizer_shape_together(const struct tokenizer *t, struct token_ids *ids,
                                        size_t *ends, size_t n, size_t max, struct err *e);

/*
 * Encoding by parts. tokenizer_check() has the errors that do not depend on the tokenizer. From
 * *at, which is 0 or a cut, tokenizer_next_cut() finds the next one: an end of a special token behind which
 * text changes nothing before it. The ids of what lies between two cuts, the start and the end, one behind the
 * other, are those of the whole; both calls take the whole text, checked.
 */
MUST_CHECK int tokenizer_check(struct str text, struct err *e);
bool tokenizer_next_cut(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                        size_t *at);
MUST_CHECK int tokenizer_encode_part(const struct tokenizer *t, struct tokenizer_scratch *s,
                                     struct str text, size_t from, size_t to, struct token_ids *out,
                                     struct err *e);

/* Appends the text of @ids to @out, always valid UTF-8. Ids out of range add nothing. */
void tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                      struct buf *out);

/* Number of ids, added tokens included; ids may have gaps below the largest. */
size_t tokenizer_vocab_size(const struct tokenizer *t);
/* One more than the largest id. */
uint32_t tokenizer_id_limit(const struct tokenizer *t);
/* The token as the file spells it (byte-level letters, "▁", "<0x0A>"), borrowed; STR_NULL when the
 * id is unknown. */
struct str tokenizer_token_text(const struct tokenizer *t, uint32_t id);
/* False when no token is spelt so. Special tokens such as "</s>" are found too. */
MUST_CHECK bool tokenizer_find(const struct tokenizer *t, struct str token, uint32_t *ret_id);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
/* Whether the token stands for a byte within a character ("<0xA9>"). */
bool tokenizer_is_continuation(const struct tokenizer *t, uint32_t id);

/*
 * Decoding one token after another. The text so far is that of tokenizer_decode() over all ids
 * pushed; only its end may still change. Embedded; init before use, done afterwards.
 */
struct tokenizer_join {
    const struct tokenizer *t; /* borrowed */
    struct buf text;           /* what can no longer change */
    uint8_t tail[4];           /* start of a character that is not complete */
    uint8_t n_tail;
    size_t run;      /* byte fallback: byte tokens at the end of text, not yet decided */
    bool run_broken; /* they can no longer become valid UTF-8 */
    uint32_t last;   /* the token pushed last, when started */
    size_t n_last; /* BPEDecoder: bytes of it at the end of text, as they are if nothing follows */
    bool started;  /* a token was pushed; SentencePiece: no blank is dropped any more */
};

void tokenizer_join_init(struct tokenizer_join *j, const struct tokenizer *t);
void tokenizer_join_done(struct tokenizer_join *j);
void tokenizer_join_reset(struct tokenizer_join *j);
/* What is pushed stands behind other text, so no blank is dropped from its start. Call when empty. */
void tokenizer_join_resume(struct tokenizer_join *j);
void tokenizer_join_push(struct tokenizer_join *j, uint32_t id, bool skip_special);
/* Appends what the text would be if nothing followed, from byte @from of it on. */
void tokenizer_join_text(const struct tokenizer_join *j, size_t from, struct buf *out);
/* Its length in bytes, and whether it ends in U+FFFD. */
size_t tokenizer_join_len(const struct tokenizer_join *j, bool *ret_ends_broken);
/* Bytes of it that no further token can change. */
size_t tokenizer_join_settled(const struct tokenizer_join *j);
