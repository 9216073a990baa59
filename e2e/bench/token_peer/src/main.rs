// SPDX-License-Identifier: Apache-2.0
//! token_peer LIBRARY TOKENIZER PROMPTS: CPU time of encoding each prompt once, with caches that begin empty.
//!
//! LIBRARY is "tokenizers" or "fastokens", PROMPTS a file of texts that end in a NUL each. Prints what
//! `tokenizer_bench TOKENIZER PROMPTS` prints for ours, so that ids can be compared too.

use std::{env, fs, path::Path};

fn cpu_seconds() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

fn measure<I: AsRef<[u32]>>(prompts: &[&str], encode: impl Fn(&str) -> I) {
    let (mut seconds, mut tokens, mut bytes, mut sum) = (0.0, 0, 0, 0u64);
    for prompt in prompts {
        let start = cpu_seconds();
        let ids = encode(prompt);
        seconds += cpu_seconds() - start;
        tokens += ids.as_ref().len();
        bytes += prompt.len();
        for id in ids.as_ref() {
            sum = sum.wrapping_mul(1_000_003).wrapping_add(*id as u64);
        }
    }
    println!(
        "{}",
        serde_json::json!({"mb_per_cpu_s": bytes as f64 / seconds / 1e6, "tokens": tokens, "sum": sum.to_string()})
    );
}

fn main() {
    let args: Vec<String> = env::args().collect();
    env::set_var("RAYON_NUM_THREADS", "1");
    env::set_var("TOKENIZERS_PARALLELISM", "false");
    let text = fs::read_to_string(&args[3]).expect("prompts");
    let prompts: Vec<&str> = text.split_terminator('\0').collect();
    if args[1] == "tokenizers" {
        let t = tokenizers::Tokenizer::from_file(&args[2]).expect("tokenizer.json");
        measure(&prompts, |p| t.encode_fast(p, false).expect("ids").get_ids().to_vec());
    } else {
        let t = fastokens::Tokenizer::from_file(Path::new(&args[2])).expect("tokenizer.json");
        measure(&prompts, |p| t.encode(p).expect("ids"));
    }
}
