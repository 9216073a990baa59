// SPDX-License-Identifier: Apache-2.0
//! The published crates under the workload of router/kv/kv_bench.c, for e2e/bench/index_bench.py.
//!
//!     index_peer hash                             4,096 tokens to local and sequence hashes
//!     index_peer radix TRACE WORKERS
//!     index_peer compressed TRACE WORKERS [THREADS]
//!
//! Prints one JSON object. Each id of a trace stands for 32 blocks; request i goes to worker
//! i mod WORKERS, which stores what it does not hold yet in one event; then every prompt is looked
//! up; then all blocks are removed, newest request and deepest block first. Every phase is counted
//! to completion, and making events is not counted. The concurrent tree is looked up once more while
//! another thread stores and removes the blocks of one more worker without a pause.
use std::collections::HashSet;
use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dynamo_kv_router::indexer::{SyncIndexer, ThreadPoolIndexer};
use dynamo_kv_router::protocols::*;
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, RadixTree};

const ID_BLOCKS: u64 = 32;
const BATCH: usize = 512;

fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB);
    z ^ (z >> 31)
}

/// CPU time of this process, which leaves out what other programs take from us.
fn cpu_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn rss_bytes() -> u64 {
    unsafe { libc::malloc_trim(0) };
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

struct Request {
    ids: Vec<u64>,
    worker: u64,
    held: usize,
}

struct Prompt {
    local: Vec<LocalBlockHash>,
    external: Vec<u64>,
}

fn read_trace(path: &str, workers: u64) -> Vec<Request> {
    let mut held = HashSet::new();
    let text = fs::read_to_string(path).unwrap();
    let lists = text.lines().filter_map(|l| l.split("\"hash_ids\"").nth(1));
    lists
        .enumerate()
        .map(|(i, list)| {
            let digits = list.split(|c: char| !c.is_ascii_digit());
            let ids: Vec<u64> = digits.filter_map(|d| d.parse().ok()).collect();
            let worker = i as u64 % workers;
            let (mut chain, mut n, mut hit) = (mix(!mix(worker)), 0, true);
            for id in &ids {
                chain = mix(chain ^ mix(*id));
                hit &= !held.insert(chain);
                n += if hit { ID_BLOCKS as usize } else { 0 };
            }
            Request { ids, worker, held: n }
        })
        .collect()
}

fn prompt(rq: &Request) -> Prompt {
    let blocks = rq.ids.iter().flat_map(|id| (0..ID_BLOCKS).map(move |i| mix(id * ID_BLOCKS + i)));
    let local: Vec<LocalBlockHash> = blocks.map(LocalBlockHash).collect();
    let external = compute_seq_hash_for_block(&local);
    Prompt { local, external }
}

fn event(rq: &Request, id: u64, data: KvCacheEventData) -> RouterEvent {
    RouterEvent::new(rq.worker, KvCacheEvent { event_id: id, dp_rank: 0, data })
}

fn stored(rq: &Request, id: u64) -> RouterEvent {
    let p = prompt(rq);
    let blocks = (rq.held..p.local.len()).map(|i| KvCacheStoredBlockData {
        block_hash: ExternalSequenceBlockHash(p.external[i]),
        tokens_hash: p.local[i],
        mm_extra_info: None,
    });
    let parent_hash = rq.held.checked_sub(1).map(|i| ExternalSequenceBlockHash(p.external[i]));
    let data = KvCacheStoreData { parent_hash, start_position: None, blocks: blocks.collect() };
    event(rq, id, KvCacheEventData::Stored(data))
}

fn removed(rq: &Request, id: u64) -> RouterEvent {
    let gone = prompt(rq).external[rq.held..].iter().rev().map(|h| ExternalSequenceBlockHash(*h)).collect();
    event(rq, id, KvCacheEventData::Removed(KvCacheRemoveData { block_hashes: gone }))
}

enum Index {
    Radix(Box<RadixTree>),
    Compressed(ThreadPoolIndexer<ConcurrentRadixTreeCompressed>),
}

impl Index {
    async fn apply(&mut self, batch: Vec<RouterEvent>) {
        match self {
            Index::Radix(tree) => batch.into_iter().for_each(|e| tree.apply_event(e).unwrap()),
            Index::Compressed(pool) => {
                batch.into_iter().for_each(|e| pool.enqueue_event(e).unwrap());
                pool.flush_and_wait().await.unwrap();
            }
        }
    }

    fn find(&self, local: Vec<LocalBlockHash>) -> OverlapScores {
        match self {
            Index::Radix(tree) => tree.find_matches(local, false),
            Index::Compressed(pool) => pool.backend().find_matches(&local, false),
        }
    }
}

fn percentile(samples: &mut [u64], share: f64) -> f64 {
    samples.sort_unstable();
    samples[((samples.len() - 1) as f64 * share) as usize] as f64 / 1e3
}

fn apply_all<'a, I>(rt: &tokio::runtime::Runtime, index: &mut Index, requests: I, make: fn(&Request, u64) -> RouterEvent) -> u64
where
    I: Iterator<Item = &'a Request>,
{
    let mut took = 0;
    let all: Vec<&Request> = requests.collect();
    for (i, part) in all.chunks(BATCH).enumerate() {
        let full = part.iter().filter(|rq| rq.held < rq.ids.len() * ID_BLOCKS as usize);
        let batch: Vec<RouterEvent> = full.enumerate().map(|(k, rq)| make(rq, (i * BATCH + k) as u64)).collect();
        let start = cpu_ns();
        rt.block_on(index.apply(batch));
        took += cpu_ns() - start;
    }
    took
}

/// Looks every prompt up; returns the sum of the scores of the trace's workers.
fn look_up(requests: &[Request], workers: u64, took: &mut Vec<u64>, find: impl Fn(Vec<LocalBlockHash>) -> OverlapScores) -> u64 {
    let mut sum = 0;
    for rq in requests {
        let local = prompt(rq).local;
        let start = Instant::now();
        let found = find(local);
        took.push(start.elapsed().as_nanos() as u64);
        sum += found.scores.iter().filter(|(w, _)| w.worker_id < workers).map(|(_, s)| *s as u64).sum::<u64>();
        black_box(found);
    }
    sum
}

/// The same with a thread that writes what nobody asks for.
fn look_up_busily(rt: &tokio::runtime::Runtime, pool: &ThreadPoolIndexer<ConcurrentRadixTreeCompressed>, requests: &[Request], workers: u64, took: &mut Vec<u64>) -> u64 {
    let stop = AtomicBool::new(false);
    let more: Vec<Request> = requests.iter().map(|rq| Request { ids: rq.ids.clone(), worker: workers, held: 0 }).collect();
    std::thread::scope(|s| {
        s.spawn(|| {
            for rq in more.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                pool.enqueue_event(stored(rq, 0)).unwrap();
                pool.enqueue_event(removed(rq, 0)).unwrap();
                rt.block_on(pool.flush_and_wait()).unwrap();
            }
        });
        let sum = look_up(requests, workers, took, |local| pool.backend().find_matches(&local, false));
        stop.store(true, Ordering::Relaxed);
        sum
    })
}

fn replay(variant: &str, trace: &str, workers: u64, threads: usize) {
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _entered = rt.enter();
    let requests = read_trace(trace, workers);
    let n_blocks: usize = requests.iter().map(|rq| rq.ids.len() * ID_BLOCKS as usize - rq.held).sum();
    let mut index = match variant {
        "radix" => Index::Radix(Box::new(RadixTree::new())),
        "compressed" => Index::Compressed(ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), threads, 16)),
        other => panic!("no variant {other}"),
    };
    let rss_start = rss_bytes();
    let apply_ns = apply_all(&rt, &mut index, requests.iter(), stored);
    let rss_full = rss_bytes();
    let (mut took, mut busy) = (Vec::with_capacity(requests.len()), Vec::with_capacity(requests.len()));
    let score_sum = look_up(&requests, workers, &mut took, |local| index.find(local));
    if let Index::Compressed(pool) = &index {
        assert_eq!(score_sum, look_up_busily(&rt, pool, &requests, workers, &mut busy));
    } else {
        busy = took.clone(); // nobody can write meanwhile
    }
    let remove_ns = apply_all(&rt, &mut index, requests.iter().rev(), removed);
    let rss_end = rss_bytes();
    let per_s = |ns: u64| n_blocks as f64 / (ns as f64 / 1e9);
    println!(
        "{{\"blocks\":{n_blocks},\"lookups\":{},\"score_sum\":{score_sum},\"apply_per_cpu_s\":{},\"remove_per_cpu_s\":{},\
         \"lookup_p50_us\":{},\"lookup_p99_us\":{},\"busy_p50_us\":{},\"busy_p99_us\":{},\"rss_start\":{rss_start},\"rss_full\":{rss_full},\"rss_end\":{rss_end}}}",
        requests.len(),
        per_s(apply_ns),
        per_s(remove_ns),
        percentile(&mut took, 0.5),
        percentile(&mut took, 0.99),
        percentile(&mut busy, 0.5),
        percentile(&mut busy, 0.99),
    );
}

/// The same work as hash.block of kv_bench: local hashes, then the chain over them.
fn hash() {
    const ROUNDS: u32 = 2000;
    let mut tokens: Vec<u32> = (0..4096u64).map(|i| mix(i) as u32).collect();
    let start = cpu_ns();
    for round in 0..ROUNDS {
        tokens[0] = round;
        let bytes = unsafe { std::slice::from_raw_parts(tokens.as_ptr().cast::<u8>(), tokens.len() * 4) };
        let mut parent = None;
        for block in bytes.chunks_exact(64) {
            let local = dynamo_tokens::compute_hash_v2(block, 1337);
            parent = Some(parent.map_or(local, |p| dynamo_tokens::compute_next_sequence_hash(p, local)));
        }
        black_box(parent);
    }
    println!("{{\"hash_block_ns\":{}}}", (cpu_ns() - start) as f64 / f64::from(ROUNDS) / 256.0);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hash"] => hash(),
        [variant, trace, workers] => replay(variant, trace, workers.parse().unwrap(), 1),
        [variant, trace, workers, threads] => replay(variant, trace, workers.parse().unwrap(), threads.parse().unwrap()),
        _ => panic!("see the head of main.rs"),
    }
    std::process::exit(0); // the pool's threads need not be joined
}
