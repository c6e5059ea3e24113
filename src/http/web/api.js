'use strict';
// The page of the admin listener: it reads the admin API and changes nothing. Names and messages of the cluster and of
// Azure are foreign text: they enter the page only as text nodes and attributes, never as markup.

// The paths of the API. The page has no list of the fields of an answer: it shows the fields that exist (`tolerant`).
const PATHS = {
  status: 'api/v1/status', pools: 'api/v1/queues', held: 'api/v1/held', services: 'api/v1/services', nodes: 'api/v1/nodes',
  planes: 'api/v1/resources', pool: 'api/v1/queues/{}/{}', service: 'api/v1/services/{}/{}', node: 'api/v1/nodes/{}',
};
// The filters of each list.
const FILTERS = {
  pools: ['state', 'outOfSync', 'lb', 'contains'], held: ['reason', 'lb'], services: ['verdict', 'sort', 'contains'],
  nodes: ['state', 'contains'], planes: ['contains'], sources: [],
};

// The meanings of the API's words (docs/admin-api.md, docs/errors.md).
const WORDS = {
  "state": {
    "unknown": ["wait", "not read since it was assigned, or since an attempt whose outcome is not certain"],
    "in_sync": ["good", "in sync"],
    "waiting": ["", "changes wait for further ones, or for the interval between two writes"],
    "due": ["", "waits for its load balancer"],
    "attempting": ["", "is being read or written"],
    "parked": ["wait", "waits until the controller may send requests to Azure again"],
    "paused": ["wait", "is compared and not written"],
    "failed": ["bad", "the last write failed; the pool is compared again later"],
    "quarantined": ["bad", "not written any more because of an internal error: report it, and restart the controller to try again"]
  },
  "blockedBy": {
    "not_leader": ["wait", "this replica does not lead, or has just taken over"],
    "paused": ["wait", "the pool is compared and not written"],
    "breaker": ["bad", "writes on its load balancer fail in the same way; one is tried at a time"],
    "throttled": ["bad", "Azure throttles"],
    "lane_busy": ["", "its load balancer is busy with another pool"],
    "lane_locked": ["", "another operation runs on its load balancer"],
    "lane_in_doubt": ["", "the controller checks whether an operation runs on its load balancer"],
    "shared_lease": ["", "the shared Lease is not held"],
    "budget": ["", "the request budget is spent"],
    "parked": ["wait", "Azure named a time before which a retry is useless"],
    "contention": ["wait", "another client changes the pool again and again, or Azure loses writes"],
    "after_failure": ["bad", "the last attempt failed; the pool is compared again later"],
    "interval": ["", "the interval since the last attempt is not over"],
    "window": ["", "further changes may join the same write"],
    "held": ["wait", "a removal is held back"]
  },
  "reason": {
    "empty_confirm": ["wait", "the last member of a Service that exists would be removed"],
    "no_usable_node": ["wait", "there are endpoints, but none of their nodes is known and has an address, or no assigned endpoint is usable; or an object cannot be read"],
    "last_member": ["wait", "there are only endpoints that do not count, and none of their nodes is in the pool"],
    "fraction": ["wait", "a new list, or the first response of a control plane, would remove most of the members"],
    "breaker": ["bad", "so many pools would lose most of their members that no member is removed anywhere"],
    "add_only": ["wait", "the mode add-only removes no member"]
  },
  "assigned": {
    "unknown": ["bad", "no assignment was ever received: its pools stay as they are"],
    "usable": ["good", "its newest valid assignment is in use"],
    "dropped": ["bad", "its assignment was dropped (fail_on_data_errors), which empties its pools"]
  },
  "resourceState": {
    "REQUESTED": ["wait", "not received yet"],
    "DOES_NOT_EXIST": ["bad", "not received in time, or deleted"],
    "ACKED": ["good", "valid and in use"],
    "NACKED": ["bad", "the newest version is invalid and was rejected"],
    "RECEIVED_ERROR": ["bad", "the control plane reported an error instead"],
    "TIMEOUT": ["bad", "not received in time, from a server with resource_timer_is_transient_error"]
  },
  "nodeState": {
    "held": ["bad", "leaves service, and waits: as many Ready nodes as allowed are Down already"],
    "recording": ["wait", "the controller records that it sets the node Down"],
    "draining": ["wait", "its entries are being set to Down"],
    "down": ["", "each of its entries is Down, except those that are excluded"],
    "restoring": ["wait", "the entries that the controller set to Down are being restored"],
    "gone": ["", "the Node object is gone, and entries that are Down remain"]
  },
  "verdict": {
    "quarantined": ["bad", "the controller has an internal error"],
    "failed": ["bad", "a pool was not written, or the last attempt failed"],
    "not_manageable": ["bad", "the controller may not write a pool"],
    "paused": ["wait", "a pool is compared and not written"],
    "missing_members": ["wait", "a pool lacks members, or a fault blocks its writes"],
    "held": ["wait", "a removal is held back"],
    "out_of_sync": ["wait", "a pool does not match its endpoints yet"],
    "no_rule": ["wait", "no load-balancing rule was found yet"],
    "incomplete": ["wait", "its pools are in sync, but a member is Down, a node is excluded, or an endpoint has no usable node"],
    "in_sync": ["good", "each of its pools is in sync"],
    "not_managed": ["", "the controller does not manage it"]
  },
  "role": {
    "leader": ["good", "leads and writes"],
    "alone": ["wait", "a dry run: acts as the leader, and writes nothing"],
    "confirming": ["wait", "leads, and reads current lists and pauses before it writes"],
    "settling": ["wait", "has taken over, and waits until the last write of the previous leader can no longer arrive"],
    "standby": ["wait", "does not write: another replica leads, or none does yet"],
    "stopping": ["wait", "is shutting down"]
  },
  "waitsFor": {
    "time": "it ends automatically",
    "second_read": "a second read that says the same",
    "facts": "a change in the cluster or the control plane, or a release by the operator"
  }
};
// End of the words.

const EVERY_MS = 2000;      // The interval between reads of everything that is shown.
const OLD_AFTER_MS = 6000;  // An answer that is older counts as old.
const ANSWER_WITHIN_MS = 5000;
const PAGE = 100;           // Entries of one page.
const VERDICTS = 5;         // The maximum number of verdicts that are requested for the Services of a pool.
const VIEWS = { pools: 'Pools', services: 'Services', held: 'Held removals', nodes: 'Nodes that leave service', planes: 'Control planes', sources: 'Cluster and Azure' };

// ---- answers of the API ----

// The keys that the page has not found since it was last drawn.
const missed = new Set();

/** Wraps an answer: a missing key counts as null, and is recorded in `missed`. */
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

/** Requests a path of the API. Returns `{value}`, or `{problem}` after a response 400 or 404; throws otherwise. */
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

/** A part of the page that is read repeatedly. Call `reset` before it reads something else, to discard the old answer. */
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
