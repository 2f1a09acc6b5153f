/** The unique index on (chain, number). */
import { holder, mapVersions, others, type Waiting } from './mvcc'
import type { Turn } from './process'
import { changed, COMMITTED, isFreed, NOBODY, type Version } from './state'

export type Probe =
  | { readonly kind: 'free' }
  | { readonly kind: 'wait'; readonly processes: Waiting }
  | { readonly kind: 'taken'; readonly by: Version }

/** The index, which holds live rows only, asks by a dirty snapshot: it waits for every inserter and deleter in progress at this key. */
export function probe(turn: Turn, chain: number, number: number): Probe {
  if (isFreed(chain)) return { kind: 'free' }
  let processes: Waiting = 0
  let by: Version | undefined
  for (const { versions } of turn.rows) {
    for (const each of versions) {
      if (each.chain !== chain || each.number !== number || !each.indexed || each.deleter === COMMITTED) continue
      processes |= others(turn, each.creator) | others(turn, each.deleter)
      if (each.deleter === NOBODY) by = each
    }
  }
  if (processes !== 0) return { kind: 'wait', processes }
  return by === undefined ? { kind: 'free' } : { kind: 'taken', by }
}

/** The new version of an UPDATE that has changed the key and has not asked the index yet. */
export function unindexed(turn: Turn): Version {
  for (const { versions } of turn.rows) {
    const newest = versions.at(-1)
    if (newest !== undefined && !newest.indexed && newest.creator === holder(turn)) return newest
  }
  throw new TypeError('no version waits for the index')
}

export function enterIndex(turn: Turn): void {
  mapVersions(turn, (each) => (each.indexed || each.creator !== holder(turn) ? each : changed(each, { indexed: true })))
}
