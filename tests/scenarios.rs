//! Stories as text files, played against the real binary over loopback HTTP, with the simulator's models of ARM and of
//! the API server as its world. Each story has fakes, a configuration and a process of its own; all files of
//! `tests/scenarios/*.txt` are played, four at a time. `STORY=part-of-a-name` plays only some of them.
//!
//! The time is real. Lines are carried out one after another: `given` before the controller starts; `at 1.5s` that
//! long after it was ready, or at once when that has passed; `after 1s` that long after the line before; `expect`
//! waits until it is so. What must not happen is judged by the fakes' own times. Nothing here may depend on how fast
//! the machine is.
//!
//! A Service `web` is `shop/web` with the pool `shop-web` (and `shop-web-ipv6`); `team.web` is `team/web`. Nodes are
//! `node-1` with the address 10.0.0.1 (and fd00::1) and so on. In lists of members, an address stands for itself, and
//! `nobody` is the empty list. A pool is called by its name, or `<load balancer>/<pool>` where several load balancers
//! have one of this name, or none has yet.
//!
//! ```text
//! # Comments begin so; the first names the rules that the story shows.
//! given nodes 3 [dual]                            given load balancers kubernetes lb-2
//! given load balancer single prod                 and prod-internal, filled by interfaces; no Service has a pool
//! given service web [dual] on kubernetes hosted node-1     with rules, and pools that are right
//! given pool shop-web holds node-9                given controller batching.quietPeriod 2s
//! given dry run                                   given patience 2s
//! given <any change>
//!
//! slice web[/2] <endpoints>      hosted, not-ready or terminating, each with nodes; nowhere; empty
//! delete slice web[/2]           slice web garbled
//! node node-1 gone|deleted|ip <ips>|label <key> [<value>]|unlabel <key>|machine <scale set>/<number>
//! node node-1 replaced [ip <ips>]                 another node of this name, Ready and without taints
//! node node-1 taint <taint>|untaint <key>|cordoned|uncordoned|ready|not-ready
//! node node-1 notice event|event-v1|condition [reason <reason>] [age <time>] [text <text>]
//! service web policy <p>|paused|unpaused|deleted|garbled|mended|on <load balancer> [<endpoints>]
//! [outbound|nat] rule <name> for <pool>           no rule of web
//! pool <pool> nic-backed|automatic <nodes>        pool <pool> removed             unknown fields
//! foreign PUT <pool> <members>   foreign down|up|none <pool> <node>      the admin state of one entry
//! arm get|put <latency>          arm operation <latency> retry-after <seconds>
//! arm fault put|get|lb-get|poll|any <status>|lost|refused|failed|canceled [code C] [every N] [times N]
//!           [retry-after R] [body html|bare|pascal|empty] [on <load balancer>]
//! arm healthy|down|up            arm loses|keeps writes          arm nic-admin-state allow|refuse
//! apiserver lists empty <kinds>|full              apiserver restart (watches end, and everybody lists anew)
//! apiserver down|up              apiserver raw services|endpointslices|nodes <line>
//! apiserver streaming refused-as-invalid|refused-as-bad-request|refused-by-error-event
//! person releases|pauses|resumes everything|<pool>                person releases node node-1
//! controller killed|stopped|started               cloud <key of azure.json> <value>, from the next start on
//!
//! expect PUT <pool> <members> [down <nodes>] [-> <status>|lost]       the next write of this pool, in which nobody
//!                                                 else is Down; every write must be expected
//! expect no PUT [<pool>] until 2s                 of the story's clock
//! expect no PUT [<pool>] for 2s                   from the last change or the last expected PUT's answer
//! expect no PUT [<pool>] for 2s after PUT         from the last expected PUT's answer
//! expect no pool GET for 1s      expect no ARM write|call for 2s
//! expect quiet 2s                waits until nothing was asked of ARM for so long
//! expect polls <at least>        expect members <pool> <members>     expect down <pool> <nodes>
//! expect overlap <pool> <pool>   the last expected PUTs of both
//! expect body <text>             expect unknown fields in body          of the last expected PUT
//! expect traffic <pool> new <nodes> [kept <nodes>]         of the healthy: who gets new connections, and who gets
//!                                                 none and keeps those that it has
//! expect taints node-1 <taints>|none              expect records <nodes>, of which our ConfigMap has one
//! expect event <reason> <service>|node <node> [x<exactly so many by the end>] [<text>]
//! expect no event <reason> <service>|node <node>  expect no events
//! expect held <service> <reason> expect gauge <series> <value>          expect shared lease never ours
//! expect GET <path> <pointer> <value>             expect log <level> <text>
//! finally <pool> <members>       finally any <pool>           where plain truth does not say how a pool ends
//! finally any admin states       where plain truth does not say which entries are Down
//! finally refused PUTs <pool> -> <status>         of which the story does not speak one by one
//! finally something waits        where the controller has something to do all the same
//! ```
//!
//! A taint is `KEY[=VALUE][:EFFECT]`, or `out-of-service`, `shutdown` or `spot-eviction`.
//!
//! At the end every pool is right, the entries of nodes that leave service are Down and no others, but those that somebody
//! else has set Down, nothing waits, every write was expected, none overlapped another on its load balancer, SIGTERM ends
//! the process with 0, and its log has no ERROR line that no `expect log ERROR` names.

mod act;
mod azure;
mod ending;
mod expect;
mod signals;
mod stage;
mod story;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use simulator::models::arm::Kind;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use stage::Stage;
use story::{Story, When};

/// How many stories are played at the same time.
const AT_ONCE: usize = 4;

/// Plays a story; what is wrong with it, if anything.
async fn play(story: &Story) -> Result<(), String> {
    let mut stage = Stage::set_up().await;
    let played = scenes(story, &mut stage).await;
    played.map_err(|error| format!("{error}\n{}", stage.remains()))
}

async fn scenes(story: &Story, stage: &mut Stage) -> Result<(), String> {
    let mut started = false;
    stage.prepare(&["load", "balancers", "kubernetes"]).await?;
    for line in &story.lines {
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        if !started && line.when != When::Given {
            stage.start().await.map_err(|error| format!("{}: the start: {error}", story.name))?;
            started = true;
        }
        match line.when {
            When::At(time) => stage.wait_until(stage.zero_us + us(time)).await,
            When::After(time) => stage.wait_until(stage.now_us() + us(time)).await,
            When::Given | When::Expect | When::Finally => {}
        }
        let done = match (line.when, words.as_slice()) {
            (When::Given, words) => stage.prepare(words).await,
            (When::Finally, words) => stage.promise(words),
            (When::Expect, words) | (When::At(_) | When::After(_), ["expect", words @ ..]) => {
                stage.expect(words).await
            }
            (When::At(_) | When::After(_), words) => {
                stage.mark_us = stage.now_us();
                stage.act(words).await
            }
        };
        done.map_err(|error| format!("{}:{}: {}: {error}", story.name, line.number, words.join(" ")))?;
    }
    stage.end().await.map_err(|error| format!("{}: the end: {error}", story.name))
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn stories() -> Vec<Story> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let wanted = std::env::var("STORY").unwrap_or_default();
    let files =
        std::fs::read_dir(folder).expect("the folder of the stories").flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "txt")).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(path).expect("a story can be read");
        name.contains(&wanted).then(|| Story::parse(&name, &text).unwrap_or_else(|error| panic!("{error}")))
    };
    let stories: Vec<Story> = files.iter().filter_map(read).collect();
    assert!(!stories.is_empty(), "no story has {wanted:?} in its name");
    stories
}

/// Plays them, a few at a time; what is wrong with each, by name.
async fn play_all(stories: Vec<Story>) -> Vec<(String, Result<(), String>)> {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut playing = JoinSet::new();
    for story in stories {
        let places = Arc::clone(&places);
        playing.spawn(async move {
            let _place = places.acquire_owned().await.expect("nobody closes it");
            let played = play(&story).await;
            (story.name, played)
        });
    }
    let mut played = playing.join_all().await;
    played.sort_by(|one, other| one.0.cmp(&other.0));
    played
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_story_goes_as_it_is_told() {
    let played = play_all(stories()).await;
    let count = played.len();
    let failed: Vec<String> = played.into_iter().filter_map(|(_, played)| played.err()).collect();
    assert!(failed.is_empty(), "{} of {count} stories failed:\n\n{}", failed.len(), failed.join("\n\n"));
}

/// A story that goes wrong, and what is said of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_story_that_does_not_go_as_told_fails() {
    let world = "given patience 2s\ngiven nodes 2\ngiven service web on kubernetes hosted node-1\n";
    let wrong = [
        ("other members", "at 0s slice web hosted node-2\nexpect PUT shop-web node-1", "the next PUT has"),
        ("untold", "at 0s slice web hosted node-2\nexpect members shop-web node-2", "does not speak of"),
        ("no write", "at 0s slice web hosted node-1\nexpect PUT shop-web node-1", "not within"),
        ("too early", "at 0s slice web hosted node-2\nexpect no PUT for 1.5s", "was written at"),
        ("no event", "at 0s slice web hosted node-1\nexpect event Nothing web", "not in time"),
        ("wrong end", "at 0s slice web hosted node-1\nfinally shop-web node-2", "wrong at the end"),
        ("no error", "expect log ERROR of no kind", "no error in the log"),
        (
            "lease",
            "at 0s slice web hosted node-2\nexpect PUT shop-web node-2\nexpect shared lease never ours",
            "it had",
        ),
        ("nonsense", "at 0s sing", "nobody can do"),
        ("other Downs", "at 0s node node-1 taint shutdown\nexpect PUT shop-web node-1", "Down are [Entry"),
        (
            "wrong admin state",
            "given cloud enableLoadBalancerAdminState false\nat 0s node node-1 taint shutdown",
            "its node leaves service",
        ),
        (
            "asked",
            "at 0s slice web hosted node-2\nexpect PUT shop-web node-2\nexpect no ARM call for 2s",
            "there was one",
        ),
        ("no record", "at 0s expect records node-1", "not in time"),
        ("no taint", "at 0s expect taints node-1 shutdown", "not in time"),
        ("no down", "at 0s expect down shop-web node-1", "not in time"),
        ("traffic goes on", "at 0s expect traffic shop-web new nobody kept node-1", "new_connections: true"),
        ("no traffic", "at 0s expect traffic shop-web node-1", "new <nodes> [kept <nodes>]"),
        ("no such taint", "at 0s node node-1 taint shutdown:Never", "KEY[=VALUE]"),
        ("no such node", "at 0s node node-7 taint shutdown", "given nodes N"),
    ];
    let stories = wrong.iter().map(|(name, lines, _)| Story::parse(name, &format!("{world}{lines}")));
    let played = play_all(stories.collect::<Result<_, _>>().expect("stories")).await;
    for (name, played) in played {
        let said =
            wrong.iter().find(|(known, ..)| *known == name).map(|(_, _, said)| *said).expect("its own name");
        let error = played.expect_err(&name);
        assert!(error.contains(said), "{name}: {error}");
    }
}

/// Plays a story; what was asked of ARM from the first look at a pool on, and what was written.
async fn asked_of_arm(text: &str) -> (Vec<String>, Vec<String>) {
    let story = Story::parse("the same", text).expect("a story");
    let mut stage = Stage::set_up().await;
    if let Err(error) = scenes(&story, &mut stage).await {
        panic!("{error}\n{}", stage.remains());
    }
    let log = stage.fakes.log().await;
    // When a term begins, how often load balancers are read hangs on which of two messages comes first.
    let from_first = log.iter().skip_while(|call| call.kind != Kind::PoolGet);
    let asked = from_first
        .map(|call| format!("{:?} {:?} {:?} -> {}", call.kind, call.load_balancer, call.pool, call.status));
    let written = stage.puts.iter().map(|put| format!("{} {:?}", put.pool, put.entries));
    (asked.collect(), written.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_while_no_node_leaves_service_the_same_is_asked_of_arm_with_the_admin_state_on_and_off() {
    let story = "given controller discovery.interval 1h\n\
                 given load balancers kubernetes lb-2\n\
                 given nodes 3\n\
                 given service web on kubernetes hosted node-1 node-2\n\
                 given service mail on lb-2 hosted node-1\n\
                 expect GET /api/v1/status /leadership/role leader\n\
                 expect quiet 3s\n\
                 at 0s slice web hosted node-2 node-3\n\
                 expect PUT shop-web node-2 node-3\n\
                 expect quiet 5s\n\
                 after 0s node node-2 cordoned\n\
                 after 0s node node-3 not-ready\n\
                 after 0s node node-3 ready\n\
                 after 0s slice mail hosted node-3\n\
                 expect PUT shop-mail node-3\n\
                 expect quiet 5s\n";
    let off = format!("given cloud enableLoadBalancerAdminState false\n{story}");
    let (on, off) = tokio::join!(asked_of_arm(story), asked_of_arm(&off));
    assert_eq!(on, off);
    assert!(on.0.len() > 4 && on.1.len() == 2, "{on:?}");
}

#[test]
fn a_line_that_says_nothing_is_refused_with_its_number() {
    let error = |text: &str| Story::parse("tale", text).err().unwrap_or_default();
    assert!(error("# words\n\nonce upon a time").starts_with("tale:3: a line begins with"));
    assert!(error("at noon slice web empty").starts_with("tale:1: \"noon\""));
    assert!(error("at 1s slice web empty\ngiven nodes 1").starts_with("tale:2: given comes before"));
    assert!(error("expect").starts_with("tale:1: the line ends"));
    let times = |text: &str| story::duration(text).ok();
    assert_eq!(times("0.2s"), Some(Duration::from_millis(200)));
    assert_eq!(times("150ms"), Some(Duration::from_millis(150)));
    assert_eq!(times("-1s"), None);
}
