//! The whole controller in one simulated world, by seeds: all machines and the one `route`, edges that delay and
//! bundle, the modelled ARM and API server with their faults, and a cluster that never rests.
//!
//! `SIMULATION_SEED=n` plays one seed again, `SIMULATION_SEEDS=n` says how many are played. A seed that fails is
//! shown with its last messages, and with the smallest story of the same seed that fails too;
//! `SIMULATION_ABOUT=text` shows the last messages in which the text occurs instead, such as a pool's name.

#[path = "simulation/azure.rs"]
mod azure;
#[path = "simulation/ccm.rs"]
mod ccm;
#[path = "simulation/cluster.rs"]
mod cluster;
#[path = "simulation/codec.rs"]
mod codec;
#[path = "simulation/decode.rs"]
mod decode;
#[path = "simulation/kubernetes.rs"]
mod kubernetes;
#[path = "simulation/plant.rs"]
mod plant;
#[path = "simulation/play.rs"]
mod play;
#[path = "simulation/random.rs"]
mod random;
#[path = "simulation/replica.rs"]
mod replica;
#[path = "simulation/story.rs"]
mod story;
#[path = "simulation/trace.rs"]
mod trace;
#[path = "simulation/truth.rs"]
mod truth;
#[path = "simulation/watchdog.rs"]
mod watchdog;
#[path = "simulation/weather.rs"]
mod weather;
#[path = "simulation/world.rs"]
mod world;

use plant::Plant;
use play::{Failed, play, shrink, size_of};

/// How many seeds are played when nobody says otherwise.
const SEEDS: u64 = 30;
/// Within how many seeds a planted bug must be found.
const SEEDS_PER_PLANT: u64 = 30;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.trim().parse().ok())
}

#[test]
fn z1_the_controller_does_right_in_every_world_and_comes_to_rest_when_faults_end() {
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    let (mut worlds, mut puts, mut reports) = (0, 0, 0);
    for seed in seeds {
        match play(seed, size_of(seed), None) {
            Ok(played) => {
                (worlds, puts, reports) = (worlds + 1, puts + played.puts, reports + played.reports)
            }
            Err(failed) => {
                let Failed { size, why, trace } = shrink(failed, seed);
                panic!(
                    "seed {seed} fails, smallest with {size:?}: {why}\n{trace}replay it: SIMULATION_SEED={seed}"
                );
            }
        }
    }
    println!("{worlds} worlds, {puts} PUTs, {reports} reports");
    // A world in which nothing happens proves nothing.
    assert!(worlds < 10 || puts > 10 * worlds && reports > 10 * worlds);
}

#[test]
fn z1_a_seed_plays_the_same_world_each_time() {
    let once = play(3, size_of(3), None).map_err(|failed| failed.why);
    let again = play(3, size_of(3), None).map_err(|failed| failed.why);
    assert_eq!(once, again);
}

#[test]
fn z1_each_planted_bug_is_found() {
    let found =
        |plant: Plant| (0..SEEDS_PER_PLANT).any(|seed| play(seed, size_of(seed), Some(plant)).is_err());
    let missed: Vec<Plant> = Plant::ALL.into_iter().filter(|plant| !found(*plant)).collect();
    assert_eq!(missed, [], "these planted bugs were not found");
}
