'use strict';
// The page of the admin listener: it reads the admin API and changes nothing. Names and messages of the cluster and of
// Azure are foreign text: they enter the page as text nodes and attributes alone, never as markup.

// All that is read of the admin API. The script sees nothing else of an answer, and says so when an answer is not like
// this. A type that ends in "?" may be null, one that ends in "~" may be absent; objects and lists may be null.
const API = {
  "status": {
    "path": "api/v1/status", "parameters": [],
    "answer": {
      "snapshotAgeSeconds": "number?", "version": "text", "dryRun": "flag", "mode": "text?",
      "leadership": { "identity": "text", "role": "text", "roleSeconds": "number", "holder": "text?", "term": "number",
        "certainForSeconds": "number?", "lastError": "text?" },
      "pauses": {
        "items": [{ "scope": "text", "target": "text?", "ageSeconds": "number?", "since": "text?", "returned": "flag",
          "by": "text?", "reason": "text?" }],
        "unreadable": [{ "key": "text", "why": "text", "remedy": "text" }],
        "termWaits": "flag", "lastError": "text?" },
      "sharedLease": { "state": "text", "stateSeconds": "number", "holder": "text?", "whose": "text",
        "holderSeconds": "number?", "endsInSeconds": "number?", "wantedSeconds": "number?", "lastError": "text?" },
      "synced": { "lists": "flag", "discovery": "flag" },
      "pools": { "total": "number", "byState": "counts" },
      "services": "number",
      "outOfSync": { "pools": "number", "longest": "text?", "longestSeconds": "number?", "longestAtLeast": "flag" },
      "guards": { "mode": "text", "secondReadSeconds": "number?",
        "removalsStopped": { "seconds": "number", "pools": "number", "of": "number" } },
      "held": [{ "pool": "text" }],
      "adminState": { "switchedOff": "flag", "held": "number", "recording": "number",
        "draining": "number", "down": "number", "restoring": "number", "gone": "number", "refused": "number",
        "unreadable": [{ "key": "text", "why": "text", "remedy": "text" }],
        "foreign": [{ "loadBalancer": "text", "backendPool": "text", "backend": "text", "adminState": "text", "node": "text?" }],
        "lastError": "text?" },
      "controlPlanes": { "sources": "number", "wrong": "number", "notManageable": "number",
        "worst": { "source": "text", "assigned": "text", "message": "text" } },
      "sources": [{ "kind": "text", "phase": "text", "synced": "flag", "objects": "number", "heardSeconds": "number?",
        "lastError": "text?" }],
      "loadBalancers": [{ "name": "text", "exists": "flag?", "readSeconds": "number?", "pools": "number",
        "lastError": "text?" }],
      "lanes": [{ "loadBalancer": "text", "writing": { "pool": "text", "phase": "text", "seconds": "number" },
        "waiting": [{ "pool": "text", "seconds": "number" }], "closedForSeconds": "number?", "blockedBy": "text?" }],
      "gates": [{ "class": "text", "closedForSeconds": "number?", "budgetLeft": "number", "budget": "number" }]
    }
  },
  "pools": {
    "path": "api/v1/queues", "parameters": ["state", "lb", "contains", "limit", "after"],
    "answer": {
      "items": [{ "loadBalancer": "text", "backendPool": "text", "state": "text", "stateSeconds": "number",
        "services": "list", "source": "text", "required": "number", "observed": "number?", "waitingSeconds": "number?",
        "outOfSyncSeconds": "number?", "outOfSyncAtLeast": "flag", "provisioningFailed": "flag",
        "nextInSeconds": "number?", "lastError": "text?", "held": { "reason": "text" }, "wouldHold": { "reason": "text" } }],
      "next": "text?"
    }
  },
  "pool": {
    "path": "api/v1/queues/{lb}/{pool}", "parameters": [],
    "answer": {
      "pool": {
        "loadBalancer": "text", "backendPool": "text", "state": "text", "stateSeconds": "number", "services": "list",
        "source": "text", "note": "text?", "remarks": [{ "detail": "text" }],
        "waitingSeconds": "number?", "outOfSyncSince": "text?", "outOfSyncSeconds": "number?", "outOfSyncAtLeast": "flag",
        "nextInSeconds": "number?", "lastError": "text?",
        "held": { "reason": "text", "seconds": "number", "waitsFor": "text", "endsInSeconds": "number?", "members": "list" },
        "wouldHold": { "reason": "text", "seconds": "number", "waitsFor": "text", "endsInSeconds": "number?", "members": "list" },
        "family": "text", "provenance": "text",
        "members": { "required": [{ "ip": "text", "name": "text", "nodeReady": "flag" }], "tolerated": "list",
          "observed": "list", "adminStates": "map", "missing": "list", "mustGo": "list" },
        "observedAt": "text?", "attempt": "text?", "retries": "map", "lastAttempt": { "outcome": "text", "at": "text?" },
        "wouldChange": { "add": "list", "remove": "list" }, "lostWrites": "number",
        "pausedBy": [{ "scope": "text", "target": "text~" }]
      }
    }
  },
  "held": {
    "path": "api/v1/held", "parameters": ["reason", "lb", "limit", "after"],
    "answer": {
      "items": [{ "loadBalancer": "text", "backendPool": "text", "services": "list", "source": "text",
        "held": { "reason": "text", "seconds": "number", "waitsFor": "text", "endsInSeconds": "number?", "members": "list" },
        "wouldHold": { "reason": "text", "seconds": "number", "waitsFor": "text", "endsInSeconds": "number?", "members": "list" } }],
      "next": "text?"
    }
  },
  "services": {
    "path": "api/v1/services", "parameters": ["contains", "limit", "after"],
    "answer": {
      "items": [{ "namespace": "text", "name": "text", "verdict": "text", "endpointSlices": "number",
        "endpoints": "number", "pools": "list" }],
      "next": "text?"
    }
  },
  "nodes": {
    "path": "api/v1/nodes", "parameters": ["state", "contains", "limit", "after"],
    "answer": {
      "items": [{ "name": "text", "state": "text", "reasons": "list", "signalSeconds": "number?", "ready": "flag",
        "addresses": "list", "instance": "text?", "retries": "number", "nextInSeconds": "number?", "lastError": "text?",
        "pools": { "total": "number", "down": "number", "waiting": "number", "failed": "number", "foreign": "number",
          "unknown": "number", "excluded": "number" } }],
      "next": "text?"
    }
  },
  "planes": {
    "path": "api/v1/resources", "parameters": ["contains", "limit", "after"],
    "answer": {
      "servers": [{ "uri": "text", "used": "flag", "connected": "flag", "failure": "text?", "cut": "text?" }],
      "items": [{ "type": "text", "name": "text", "state": "text", "version": "text?", "updatedAt": "text?",
        "edsName": "text?", "addresses": { "healthy": "number", "degraded": "number", "draining": "number", "out": "number" },
        "error": { "message": "text" } }],
      "next": "text?",
      "sources": [{ "source": "text", "assigned": "text", "error": { "message": "text" },
        "ambientErrors": [{ "message": "text" }],
        "pools": [{ "loadBalancer": "text", "backendPool": "text", "state": "text?",
          "notManageable": { "reason": "text", "detail": "text" } }] }]
    }
  },
  "service": {
    "path": "api/v1/services/{namespace}/{name}", "parameters": [],
    "answer": {
      "verdict": "text",
      "service": { "namespace": "text", "name": "text", "uid": "text", "candidacy": "text", "paused": "any",
        "endpointSlices": "number", "endpoints": "number", "dataErrors": "list", "pools": "list",
        "notManageable": [{ "pool": "text", "reason": "text", "detail": "text" }] }
    }
  }
};
// End of what is read.

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
const VIEWS = { pools: 'Pools', held: 'Held removals', services: 'Services', nodes: 'Nodes that leave', planes: 'Control planes', sources: 'Cluster and Azure' };

// ---- what the API says ----

/** The declared part of an answer; what is missing or of another type is noted in `wrong`. */
function shaped(shape, value, at, wrong) {
  if (typeof shape === 'string') {
    const kind = shape.replace(/[?~]$/, '');
    const fits = {
      number: (v) => typeof v === 'number', text: (v) => typeof v === 'string', flag: (v) => typeof v === 'boolean',
      list: (v) => v === null || Array.isArray(v), map: (v) => typeof v === 'object', counts: (v) => typeof v === 'object',
      any: (v) => v !== undefined,
    }[kind];
    const absent = (shape.endsWith('?') && value === null) || (shape.endsWith('~') && value === undefined);
    if (!absent && !fits(value)) wrong.push(at);
    return value ?? null;
  }
  if (value === null) return null;
  if (Array.isArray(shape)) {
    if (!Array.isArray(value)) { wrong.push(at); return []; }
    return value.map((item) => shaped(shape[0], item, `${at}[]`, wrong));
  }
  if (typeof value !== 'object') { wrong.push(at); return null; }
  const taken = {};
  for (const [key, inner] of Object.entries(shape)) taken[key] = shaped(inner, value[key], `${at}.${key}`, wrong);
  return taken;
}

/** Asks the API; gives `{value}`, or `{problem}` where it has answered that there is no such thing; throws otherwise. */
async function ask(kind, names, parameters, signal) {
  const { path, answer } = API[kind];
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(names[name]));
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== '' && value !== null));
  const url = query.size ? `${filled}?${query}` : filled;
  const limit = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const response = await fetch(url, { cache: 'no-store', redirect: 'error', signal: AbortSignal.any([signal, limit]) });
  const body = await response.json().catch((error) => {
    if (signal.aborted || limit.aborted) throw error;
    throw new Error(`HTTP ${response.status}, and no JSON: this is not the controller's admin API`);
  });
  if (response.status === 404 || response.status === 400) return { problem: String(body.detail ?? body.title) };
  if (!response.ok) throw new Error(`HTTP ${response.status}: ${body.detail ?? ''}`);
  const wrong = [];
  const value = shaped(answer, body, kind, wrong);
  if (wrong.length) throw new Error(`its answers are not as this page knows them (${[...new Set(wrong)].join(', ')}); reload the page`);
  return { value };
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
