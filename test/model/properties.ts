/** What must hold. Rows are looked at after every commit, a turn after every step. */
import type { Process, Turn } from './process'
import { LOOPS_USED_UP } from './flow'
import { COMMITTED, isFreed, type Row, type Version } from './state'

/** What a transaction that starts now would see, were every other one rolled back. */
function live(rows: readonly Row[]): Version[] {
  const isLive = (v: Version): boolean => v.creator === COMMITTED && v.deleter !== COMMITTED && !isFreed(v.chain)
  return rows.flatMap(({ versions }) => versions.filter(isLive))
}

export const TWICE = 'a text is stored twice'

export function storedTwice(rows: readonly Row[]): boolean {
  const all = live(rows)
  return all.some((one, index) => all.slice(index + 1).some((v) => v.chain === one.chain && v.text === one.text))
}

/** The first property that the committed rows break. */
export function brokenRows(rows: readonly Row[]): string | undefined {
  const all = live(rows)
  if (storedTwice(rows)) return TWICE
  for (const [index, one] of all.entries()) {
    const twin = all.slice(index + 1).some((v) => v.chain === one.chain && v.number === one.number)
    if (twin) return 'the model of the unique index is wrong'
    const anchor = all.find((v) => v.chain === one.chain && v.number === 0)
    if (anchor === undefined) return 'a chain has no anchor'
    if (one.number >= 1 && !anchor.flag) return 'an anchor with others has no flag'
  }
  return undefined
}

export const COPY_REFUSED = 'a copy of a whole chain is refused'

/** Whatever the order of its rows, a chain that was whole elsewhere is stored where nobody else writes. */
export function copyRefused({ failed, processes }: Turn, { script: { statement } }: Process): boolean {
  if (failed !== '23505' || processes.length > 1 || typeof statement === 'string') return false
  const inserts = statement.kind === 'write' ? statement.parts.filter((part) => part.kind === 'insert') : []
  return inserts.length > 0 && inserts.every(({ copied }) => copied !== undefined)
}

export function brokenTurn(turn: Turn, before: Process): string | undefined {
  if (turn.violation !== undefined) return turn.violation
  if (turn.failed === LOOPS_USED_UP) return 'a loop of the guard does not end'
  if (copyRefused(turn, before)) return COPY_REFUSED
  const { statement } = before.script
  const finding = typeof statement === 'object' && statement.kind === 'findOrCreate'
  return finding && turn.failed === '23505' ? 'find-or-create raises a unique violation' : undefined
}
