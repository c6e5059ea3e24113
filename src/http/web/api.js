'use strict';
// The page of the admin listener: it reads the admin API and changes nothing. Names and messages of the cluster and of
// Azure are foreign text: they enter the page as text nodes and attributes alone, never as markup.

// Where everything stands. What an answer has is for the API to say: the page shows what it finds (`tolerant`).
const PATHS = {
  status: 'api/v1/status', pools: 'api/v1/queues', held: 'api/v1/held', services: 'api/v1/services', nodes: 'api/v1/nodes',
  planes: 'api/v1/resources', pool: 'api/v1/queues/{}/{}', service: 'api/v1/services/{}/{}', node: 'api/v1/nodes/{}',
};
// By what each list can be narrowed.
const FILTERS = {
  pools: ['state', 'outOfSync', 'lb', 'contains'], held: ['reason', 'lb'], services: ['verdict', 'sort', 'contains'],
  nodes: ['state', 'contains'], planes: ['contains'], sources: [],
};

// What the API's words mean, as docs/admin-api.md and docs/errors.md tell it.
const WORDS = {
  "state": {
    "unknown": ["wait", "assigned, and not seen since, or not since an attempt whose end is not certain"],
    "right": ["good", "as it should be"],
    "waiting": ["", "changes wait for quiet or for their interval"],
    "due": ["", "waits for its load balancer"],
    "attempting": ["", "is read or written"],
    "parked": ["wait", "waits until Azure may be asked again"],
    "paused": ["wait", "is compared and not written"],
    "failed": ["bad", "was not written, and is compared again later"],
    "quarantined": ["bad", "left alone for an error of the controller: report it, and restart the controller to try again"]
  },
  "reason": {
    "empty_confirm": ["wait", "the last member of a live Service would go"],
    "no_usable_node": ["wait", "there are endpoints, and none of their nodes is known and has an address, or none that is assigned can be used; or an object cannot be read"],
    "last_member": ["wait", "there are endpoints that do not count, and none of their nodes is in the pool"],
    "fraction": ["wait", "most of the pool would go at once with a list, or with what a control plane sent first"],
    "breaker": ["bad", "so many pools would lose most of their members at once that none loses any"],
    "add_only": ["wait", "the mode add-only removes no member"]
  },
  "assigned": {
    "unknown": ["bad", "nothing was ever known of it: its pools are left as they are"],
    "usable": ["good", "what it assigns, or last did in good order, is in use"],
    "dropped": ["bad", "what was in use is given up (fail_on_data_errors), which empties its pools"]
  },
  "resourceState": {
    "REQUESTED": ["wait", "it has not come"],
    "DOES_NOT_EXIST": ["bad", "it has not come in time, or it was deleted"],
    "ACKED": ["good", "it is valid and in use"],
    "NACKED": ["bad", "its newest version is invalid and was refused"],
    "RECEIVED_ERROR": ["bad", "the control plane has reported an error in its place"],
    "TIMEOUT": ["bad", "it has not come in time, from a server with resource_timer_is_transient_error"]
  },
  "nodeState": {
    "held": ["bad", "leaves service, and waits: as many Ready nodes are Down as may be"],
    "recording": ["wait", "it is noted that what will be Down of it is ours"],
    "draining": ["wait", "its entries are being set Down"],
    "down": ["", "each of its entries is Down, but for those that are left out"],
    "restoring": ["wait", "what is Down of it by us is given back"],
    "gone": ["", "its object is gone, and entries of it are left that are Down"]
  },
  "verdict": {
    "quarantined": ["bad", "the controller has found an error of its own"],
    "failed": ["bad", "a pool was not written, or what was tried last has failed"],
    "not_manageable": ["bad", "a pool is not ours to write"],
    "paused": ["wait", "a pool is compared and not written"],
    "missing_members": ["wait", "a pool lacks members, or its writes are stopped for a fault"],
    "held": ["wait", "a removal is held back"],
    "out_of_sync": ["wait", "a pool is not as it should be yet"],
    "no_rule": ["wait", "no load-balancing rule was found yet"],
    "incomplete": ["wait", "its pools are right, but a member is Down, a node is left out, or an endpoint has no usable node"],
    "right": ["good", "every pool of it is as it should be"],
    "not_managed": ["", "it is not for this controller"]
  },
  "role": {
    "leader": ["good", "leads and writes"],
    "alone": ["wait", "a dry run: acts as the leader and writes nothing"],
    "confirming": ["wait", "leads, and reads most recent lists and pauses before it writes"],
    "settling": ["wait", "has taken over, and waits until the last write of the leader before must have arrived"],
    "standby": ["wait", "does not write: another replica leads, or nobody does yet"],
    "stopping": ["wait", "is shutting down"]
  },
  "waitsFor": {
    "time": "it ends by itself",
    "second_read": "lists that are read again and say the same",
    "facts": "the cluster or the control plane must say something else, or a person decides"
  }
};
// End of the words.

const EVERY_MS = 2000;      // How often everything that is looked at is read.
const OLD_AFTER_MS = 6000;  // What was confirmed longer ago counts as old.
const ANSWER_WITHIN_MS = 5000;
const PAGE = 100;           // Entries of one page.
const VERDICTS = 5;         // Of how many Services of a pool the verdict is asked for.
const VIEWS = { pools: 'Pools', services: 'Services', held: 'Held removals', nodes: 'Nodes that leave', planes: 'Control planes', sources: 'Cluster and Azure' };

// ---- what the API says ----

// The keys that the page has looked for in vain since it was drawn last.
const missed = new Set();

/** An answer as the page reads it: a key that it lacks counts as null, and is noted. */
function tolerant(value, at) {
  if (typeof value !== 'object' || value === null) return value;
  const inList = Array.isArray(value);
  return new Proxy(value, {
    get(target, key) {
      if (typeof key === 'symbol' || inList && typeof target[key] === 'function') return target[key];
      const of = inList ? `${at}[]` : `${at}.${key}`;
      if (!inList && !(key in target)) missed.add(of);
      return tolerant(target[key] ?? null, of);
    },
  });
}

const each = (list) => (Array.isArray(list) ? list : []);

/** Asks the API; gives `{value}`, or `{problem}` where it has answered that there is no such thing; throws otherwise. */
async function ask(kind, names, parameters, signal) {
  let rest = names;
  const path = PATHS[kind].replace(/\{\}/g, () => { const [first, ...others] = rest; rest = others; return encodeURIComponent(first); });
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== '' && value !== null));
  const url = query.size ? `${path}?${query}` : path;
  const limit = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const response = await fetch(url, { cache: 'no-store', redirect: 'error', signal: AbortSignal.any([signal, limit]) });
  const body = await response.json().catch((error) => {
    if (signal.aborted || limit.aborted) throw error;
    throw new Error(`HTTP ${response.status}, and no JSON: this is not the controller's admin API`);
  });
  if (response.status === 404 || response.status === 400) return { problem: String(body?.detail ?? body?.title) };
  if (!response.ok) throw new Error(`HTTP ${response.status}: ${body?.detail ?? ''}`);
  return { value: tolerant(body, kind) };
}

/** One thing that is read again and again. What it has said belongs to what was asked: another question forgets it. */
class Part {
  constructor(read) { this.read = read; this.reset(); }
  reset() {
    this.flight?.abort();
    Object.assign(this, { flight: null, value: null, problem: null, error: null, at: null, asked: Date.now() });
  }
  async load() {
    if (this.flight) return;
    const flight = this.flight = new AbortController();
    try {
      const { value, problem } = await this.read(flight.signal);
      if (this.flight !== flight) return;
      Object.assign(this, { value: value ?? null, problem: problem ?? null, error: null, at: Date.now() });
    } catch (error) {
      if (this.flight !== flight) return;
      this.error = error.name === 'TimeoutError' ? `no answer within ${ANSWER_WITHIN_MS / 1000} s` : error.message;
    }
    this.flight = null;
    draw();
  }
  rest() { this.flight?.abort(); this.flight = null; }
  old() {
    const age = Date.now() - (this.at ?? this.asked);
    return this.error !== null || age > OLD_AFTER_MS || age < -1000;
  }
}
