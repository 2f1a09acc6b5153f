import { literal } from './identifier'
import { nameFields, namesTableOf } from './name-body'
import type { HolderTable, NameColumn } from './name-table'
import { equal, op } from './text-table'

/**
 * By what each column makes of a former name.
 *
 * @param ids which names, said of their id
 */
export function releaseNames(holder: HolderTable, ids: string): string {
  const kind = ({ former }: NameColumn): string => `${former.state} ${former.interval ?? ''}`
  const kinds = new Set(holder.names.map(kind))
  return [...kinds]
    .map((one) =>
      releaseAs(
        holder,
        holder.names.filter((name) => kind(name) === one),
        ids,
      ),
    )
    .join('')
}

function releaseAs(holder: HolderTable, columns: readonly NameColumn[], ids: string): string {
  const field = nameFields(holder)
  const { state, interval } = columns[0]?.former ?? { state: 'free' }
  const where = `WHERE ${field('n', 'id')} ${ids}${
    columns.length === holder.names.length
      ? ''
      : ` AND (${columns.map(({ column }) => equal(field('n', 'property'), literal(column))).join(' OR ')})`
  };`
  if (state === 'free') return `\n    DELETE FROM ${namesTableOf(holder)} AS n ${where}`
  const now = 'pg_catalog.statement_timestamp()'
  const until = interval === undefined ? 'NULL' : `${now} ${op('+')} ${literal(interval)}::pg_catalog.interval`
  return `
    UPDATE ${namesTableOf(holder)} AS n
    SET ${field('', 'state')} = ${literal(state)}, ${field('', 'since')} = ${now},
      ${field('', 'until')} = ${until}
    ${where}`
}
