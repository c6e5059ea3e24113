// The open pool, Service or node.

const facts = (pairs) => h('dl', null, pairs.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== '').map(([name, value]) => [h('dt', null, name), h('dd', null, value)]));
const lines = (all) => (each(all).length ? each(all).map((line) => h('div', null, line)) : null);

/** Returns the pauses, each with who set it, when and why. */
const pauses = (all) => lines(each(all).map(({ scope, target, by, since, reason }) =>
  `${PAUSED_BY[scope] ?? scope}${target ? ` ${target}` : ''}${by ? ` by ${by}` : ''}${since ? ` since ${clock(since)}` : ''}${reason ? `: ${reason}` : ''}`));
const PAUSED_BY = { mode: 'the mode observe', everything: 'a pause of everything', pool: 'a pause of the pool', service: 'a pause of Service', annotation: 'the annotation azure-backend-pool-controller.io/pause of Service', not_in_restore: 'a restore of other pools' };

/** Returns the nodes with endpoints that a rule excludes. */
const excludedNodes = (all) => lines(each(all).map(({ node, family, detail }) => [opener('node', node), ` (${family}): ${detail}`]));

function drawHeld(pool) {
  const held = pool.held ?? pool.wouldHold;
  if (!held) return [];
  const said = `${pool.held ? 'Held back' : 'Would be held back'} for ${span(held.seconds)}: ${meaning('reason', held.reason) || held.reason}. Waits for: ${ends(held)}.`;
  const note = !pool.held ? 'guards.mode is observe: the members are removed all the same.' : held.reason === 'add_only' ? 'A release does not change the mode: set mode in the configuration to remove members.' : null;
  return [h('h3', null, 'Held removal'), h('p', null, word('reason', held.reason), ` ${said}`), h('p', null, `Members kept: ${joined(held.members)}`), note && h('p', { class: 'faint' }, note)];
}

/** Returns each address of a pool once, those with a problem first. */
function members(pool) {
  const { required, tolerated, observed, adminStates, missing, surplus } = pool.members ?? {};
  const named = new Map(each(required).map((member) => [member.ip, member]));
  const states = new Map(Object.entries(adminStates ?? {}));
  const all = [...new Set([...each(missing), ...each(surplus), ...named.keys(), ...each(tolerated), ...each(observed)])];
  const [lacks, goes, may, seen, kept] = [missing, surplus, tolerated, observed, pool.held?.members].map((names) => new Set(each(names)));
  return all.map((ip) => {
    const how = lacks.has(ip) ? ['bad', 'missing: required'] : goes.has(ip) ? ['wait', 'in the pool, surplus']
      : kept.has(ip) ? ['wait', 'in the pool, its removal is held'] : named.has(ip) ? (observed ? ['good', 'in the pool, required'] : ['', 'required; not read yet'])
        : may.has(ip) ? ['', seen.has(ip) ? 'in the pool, tolerated' : 'tolerated, not in the pool'] : ['', 'in the pool'];
    const member = named.get(ip);
    const state = states.get(ip) ?? '–';
    // The name of a member from a control plane is not that of a node.
    const node = !member ? '–' : pool.source === 'kubernetes' ? opener('node', member.name) : member.name;
    return row(ip, false, h('span', { class: how[0] }, how[1]), h('span', { class: 'name ip' }, ip), node, member ? (member.nodeReady ? 'ready' : 'not ready') : '–',
      h('span', { class: state === 'Down' ? 'wait' : '' }, state));
  });
}

const NAMED = 5;  // The maximum number of changed members of one kind that are named.

/** Returns the members that an attempt has changed in one way, as the event names them; falsy if there are none. */
function changed(how, list) {
  const named = each(list?.members).slice(0, NAMED).map(({ node, address }) => (node && address ? `${node} (${address})` : node ?? address ?? 'an entry without a name'));
  const more = (list?.count ?? 0) - named.length;
  return list?.count > 0 && `${list.count} ${how}: ${named.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

/** Returns how the last attempt ended, what it changed, and why. */
function lastAttempt(last) {
  if (!last) return null;
  const { outcome, at, trigger, added, removed, down, restored, correlationId } = last;
  const lists = [['added', added], ['removed', removed], ['set to Down', down], ['restored', restored]].map(([how, list]) => changed(how, list));
  return lines([`${outcome}${at ? ` at ${clock(at)}` : ''}`, ...lists, trigger && `trigger: ${trigger}`, correlationId && `correlation id: ${correlationId}`].filter(Boolean));
}

function drawPool({ pool, verdicts }) {
  const retries = Object.entries(pool.retries ?? {}).map(([uid, counts]) => `${uid}: ${[counts].flat().join(', ')}`);
  const would = pool.wouldChange && `add ${joined(pool.wouldChange.add)}; remove ${joined(pool.wouldChange.remove)}`;
  const { required, tolerated, observed } = pool.members ?? {};
  const more = each(pool.services).slice(verdicts.length);
  const inSeconds = (seconds) => (seconds === null ? null : span(seconds));
  return [
    h('p', null, word('state', pool.state, ` for ${span(pool.stateSeconds)}`), ` ${meaning('state', pool.state)}${pool.held ? ', except for the removal that is held back' : ''}`),
    pool.why && h('p', null, h('strong', null, 'Why: '), pool.why),
    verdicts.map(({ key, verdict, problem }) => h('p', { key }, verdict === null ? `${key}: ${problem ?? 'unknown'}` : [opener('service', key), pool.why && verdict?.includes(pool.why) ? null : `: ${verdict}`])),
    more.length > 0 && h('p', null, `and ${more.length} more: ${joined(more)}`),
    facts([
      ['Out of sync', pool.outOfSyncSeconds !== null && `for ${pool.outOfSyncAtLeast ? 'at least ' : ''}${span(pool.outOfSyncSeconds)}, since ${clock(pool.outOfSyncSince)}`],
      ['Last error', pool.lastError], ['Paused by', pauses(pool.pausedBy)],
      ['Members', `${some(observed && observed.length)} observed, ${each(required).length} required, ${each(tolerated).length} tolerated, ${each(pool.held?.members).length} held`],
      ['Would change', would], ['Excluded nodes', excludedNodes(pool.excludedNodes)], ['Oldest change has waited', inSeconds(pool.waitingSeconds)],
      ['Waits because', pool.blockedBy && meaning('blockedBy', pool.blockedBy)], ['May go on in', inSeconds(pool.blockedForSeconds)], ['Attempt under way', pool.attempt], ['Last attempt', lastAttempt(pool.lastAttempt)],
      ['Retries by Service', retries.join('; ')], ['Lost writes', pool.lostWrites || null], ['Observed at', pool.observedAt ? clock(pool.observedAt) : 'not yet'],
      ['Filled from', pool.source !== 'kubernetes' && pool.source], ['Its control plane', pool.note],
      ['Diagnostics', lines(each(pool.diagnostics).map(({ detail }) => detail))],
      ['Known from', `${pool.provenance}, ${pool.family}`],
    ]),
    drawHeld(pool),
    poolRequests(pool),
    h('h3', null, 'Members'),
    table('Each address once, what is wrong first', ['How', 'Address', 'Node', 'Node is', 'Admin state'], members(pool)),
  ];
}

function drawService({ verdict, verdictReason, service, pools }) {
  // Only pools that have been read can be opened.
  const known = new Set(each(pools).filter((pool) => 'loadBalancer' in pool).map(poolName));
  return [
    h('p', null, word('verdict', verdictReason), ' ', h('strong', null, verdict)),
    facts([
      ['Pools', each(service.pools).length ? each(service.pools).map((pool) => h('div', null, known.has(pool) ? opener('pool', pool) : pool)) : 'none'],
      ['Not written', lines(each(service.notManageable).map(({ pool, reason, detail }) => `${pool}: ${detail} (${reason})`))],
      ['Data errors', lines(service.dataErrors)], ['Excluded nodes', excludedNodes(service.excludedNodes)], ['Paused by', pauses(service.pausedBy)],
      ['Candidacy', service.candidacy?.replaceAll('_', ' ')], ['EndpointSlices', service.endpointSlices], ['Endpoints', service.endpoints], ['UID', service.uid],
    ]),
    serviceRequests(service, pools),
  ];
}

// The meanings of the states of nodes that no list shows.
const IN_SERVICE = { in_service: 'none of its entries is to be Down', not_managed: 'a taint says that it leaves service, and this process does not act on that: it does not lead, or admin states are switched off' };

function drawNode({ node }) {
  const { state, reasons, ready, signalSeconds, inPools } = node;
  const pools = node.pools ?? {};
  const inPool = (of) => row(poolName(of), false, h('span', { class: of.state === 'failed' ? 'bad' : '' }, of.state), of.listed ? opener('pool', poolName(of)) : h('span', { class: 'name' }, poolName(of)), h('span', { class: of.adminState === 'Down' ? 'wait' : '' }, of.adminState ?? 'not seen'));
  return [
    h('p', null, word('nodeState', state), ` ${meaning('nodeState', state) || (IN_SERVICE[state] ?? '')}`),
    facts([
      ['Reasons', each(reasons).length ? joined(reasons) : null], ['For', signalSeconds === null ? null : span(signalSeconds)], ['Ready', ready ? 'yes' : 'no'],
      ['Why not', nodeTroubles(node)], ['Excluded by', node.excludedBy?.detail], ['Entries', entries(node)],
      ['Set by another writer', lines(each(node.foreign).map((of) => `${of.adminState} in ${poolName(of)}`))],
      ['Pools', `${some(pools.total)}; set to Down by this controller in ${some(pools.down)}`], ['UID', node.uid],
    ]),
    each(inPools).length ? table('Its pools', ['Node there', 'Pool', 'Admin state'], inPools.map(inPool)) : h('p', { class: 'faint' }, 'It is in no pool that was read.'),
    nodeRequests(node),
  ];
}

const KINDS = { pool: ['Pool', drawPool], service: ['Service', drawService], node: ['Node', drawNode] };

function drawOne() {
  if (look.open === '') return [];
  const [kind, ...names] = opened();
  const [title, drawn] = KINDS[kind] ?? ['Nothing', () => h('p', null, 'There is no such thing.')];
  const missing = one.value && one.value[kind] === null;
  const said = missing ? [h('p', null, 'The response does not have it.')] : one.problem ? [h('p', { class: 'bad problem' }, one.problem)] : !one.value ? [h('p', { class: 'faint' }, 'reading …')] : drawn(one.value);
  return [h('div', { class: 'top' }, h('h2', null, `${title} ${names.join('/')}`), h('button', { type: 'button', onclick: close }, 'Close')), h('div', { key: look.open }, said)];
}

function close() {
  turn({ open: '' }, false);
  if (returnTo?.isConnected) returnTo.focus();
  else element('list').focus({ preventScroll: true });
}
