/** What must hold of the committed rows after every commit. */
import { standing, type HolderValues, type NameValues, type State, type Values } from './heap'
import type { Statement } from './statements'
import { RESERVES } from './take'

const isName = (of: Values): of is NameValues => of.table === 'names'
const isHolder = (of: Values): of is HolderValues => of.table !== 'names'

const holds = (name: NameValues, { table, key }: HolderValues): boolean => name.holder === table && name.key === key

/** The invariant of maintainers/protocol-names.md. */
function brokenRows(all: readonly Values[]): string | undefined {
  const [names, holders] = [all.filter(isName), all.filter(isHolder)]
  const texts = holders.flatMap(({ name }) => name ?? [])
  if (new Set(texts).size < texts.length) return 'a name has two holders'
  if (new Set(names.map(({ text }) => text)).size < names.length) return 'the model of the unique index is wrong'
  const held = names.filter(({ state }) => state === 'held')
  const missing = holders.some(
    (row) => row.name !== undefined && !held.some((one) => one.text === row.name && holds(one, row)),
  )
  if (missing) return 'a row has a name that is not held for it'
  const orphan = held.some((one) => !holders.some((row) => holds(one, row) && row.name === one.text))
  return orphan ? 'a name is held for a row that does not have it' : undefined
}

const isDropped = (statements: readonly Statement[], { holder, key, text }: NameValues): boolean =>
  statements.some(
    (one) =>
      (one.kind === 'delete' && one.table === holder && one.keys.includes(key)) ||
      (one.kind === 'forget' && one.text === text),
  )

/** Reserved names, and those that a row gives up where they are to be reserved. */
function kept(before: readonly Values[]): NameValues[] {
  return before
    .filter(isName)
    .filter(({ state, ended, holder }) => !ended && (state === 'reserved' || RESERVES[holder]))
}

/** Somebody loses a former name before its time. */
function isLost(one: NameValues, after: readonly Values[]): boolean {
  const now = after.filter(isName).find(({ text }) => text === one.text)
  const isOwn = now?.holder === one.holder && now.key === one.key
  if (one.state === 'reserved') return !isOwn || now.ended
  // Another row of its table may have taken it in the same statement.
  return now === undefined || (!isOwn && now.state !== 'held')
}

export function brokenBy(before: State, after: State, statements: readonly Statement[]): string | undefined {
  const [was, is] = [standing(before), standing(after)]
  const lost = kept(was).some((one) => !isDropped(statements, one) && isLost(one, is))
  return brokenRows(is) ?? (lost ? 'a kept former name is lost before its time' : undefined)
}
