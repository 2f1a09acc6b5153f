/** States as keys and back. Two states that differ only in the order of rows or processes are one. */
import { processOf, type Process, type State } from './process'
import { changed, COMMITTED, row, rowAt, type Row, type Version } from './state'

type Renaming = readonly number[]

function renameHolder(who: number, to: Renaming): number {
  return who === 0 || who === COMMITTED ? who : (to[who - 1] ?? 0) + 1
}

function renameVersion(of: Version, to: Renaming): Version {
  let snapshots = 0
  for (const [from, target] of to.entries()) snapshots |= ((of.snapshots >> (2 * from)) & 3) << (2 * target)
  const [creator, deleter, lock] = [of.creator, of.deleter, of.lock].map((who) => renameHolder(who, to))
  if (creator === of.creator && deleter === of.deleter && lock === of.lock && snapshots === of.snapshots) return of
  return changed(of, { creator: creator ?? 0, deleter: deleter ?? 0, lock: lock ?? 0, snapshots })
}

function inOrder(processes: readonly Process[]): boolean {
  for (let i = 1; i < processes.length; i++) {
    if ((processes[i - 1]?.order ?? 0) > (processes[i]?.order ?? 0)) return false
  }
  return true
}

/** The state with its processes sorted. Equal ones keep their order, which costs states and proves no less. */
function sorted(state: State): State {
  if (inOrder(state.processes)) return state
  const order = [...state.processes.keys()].sort(
    (a, b) => (state.processes[a]?.order ?? 0) - (state.processes[b]?.order ?? 0) || a - b,
  )
  const to: number[] = []
  for (const [position, id] of order.entries()) to[id] = position
  const rename = (each: Row): Row => {
    const versions = each.versions.map((of) => renameVersion(of, to))
    return versions.every((of, index) => of === each.versions[index]) ? each : row(versions)
  }
  const processes = order.flatMap((id) => state.processes[id] ?? [])
  return { rows: state.rows.map(rename), processes }
}

export function keyOf(given: State, order: 'processes sorted' | 'processes in place'): string {
  const state = order === 'processes sorted' ? sorted(given) : given
  const keys: string[] = []
  for (const each of state.rows) keys.push(each.key)
  if (keys.length > 1) keys.sort()
  let key = ''
  for (const each of state.processes) key += each.key
  return key + keys.join('')
}

/** Needs no more memory than the key: all its parts are interned. */
export function stateOf(key: string, processCount: number): State {
  const processes: Process[] = []
  let position = 0
  for (; processes.length < processCount; position += 3) processes.push(processOf(key.slice(position, position + 3)))
  const rows: Row[] = []
  while (position < key.length) {
    const each = rowAt(key, position)
    rows.push(each)
    position += each.key.length
  }
  return { rows, processes }
}
