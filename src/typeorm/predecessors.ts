import type { GuardNote } from '../sql/guard'
import type { TextRows } from '../sql/text-table'
import { type ChangingTable, hasColumn, isDeclared } from './changing-table'
import type { Declaration } from './registry'

type Rule = (declaration: Declaration, note: GuardNote) => boolean

/** In this order: the same text, another name for the same columns, or a hidden column that keeps its name. */
const RULES: readonly Rule[] = [
  ({ name }, note) => note.name === name,
  ({ table }, note) => columnNames(note) === columnNames(table),
  ({ table }, note) => HIDDEN.some((hidden) => note[hidden] === table[hidden]),
]

const HIDDEN = ['hash', 'number', 'chained'] as const

const columnNames = ({ text }: Pick<TextRows, 'text'>): string => JSON.stringify(text.map(({ name }) => name))

/** Which installed guard each declaration had until now, if any. No guard is given twice. */
export function predecessors(
  on: ChangingTable,
  declarations: readonly Declaration[],
  notes: readonly GuardNote[],
): ReadonlyMap<Declaration, GuardNote> {
  const found = new Map<Declaration, GuardNote>()
  const free = new Set(notes.filter(({ hash }) => hasColumn(on, hash)))
  const pair = (declaration: Declaration | undefined, note: GuardNote | undefined): void => {
    if (!declaration || !note) return
    found.set(declaration, note)
    free.delete(note)
  }
  for (const rule of RULES) {
    for (const declaration of declarations.filter((one) => !found.has(one))) {
      const note = [...free].find((one) => rule(declaration, one))
      pair(declaration, note)
    }
  }
  const unpaired = declarations.filter((one) => !found.has(one))
  pair(...onlyChange(on, unpaired, [...free]))
  return found
}

/** As TypeORM does with columns: if one text is gone and one is new, it was renamed. */
function onlyChange(
  on: ChangingTable,
  declarations: readonly Declaration[],
  notes: readonly GuardNote[],
): [Declaration | undefined, GuardNote | undefined] {
  const created = declarations.filter(({ table }) => table.text.every(({ name }) => !hasColumn(on, name)))
  const gone = notes.filter(({ text }) => text.every(({ name }) => hasColumn(on, name) && !isDeclared(on, name)))
  const [declaration, note] = [created[0], gone[0]]
  const sole = created.length === 1 && gone.length === 1 && declaration?.table.text.length === note?.text.length
  return sole ? [declaration, note] : [undefined, undefined]
}
