import { literal } from './identifier'
import { nameFields } from './name-body'
import type { HolderTable } from './name-table'
import { equal, op } from './text-table'

/** In parentheses. */
export const columnsToInsert = (holder: HolderTable): string =>
  `(
      ${nameFields(holder)('', 'namespace', 'text', 'hash', 'number', 'holder', 'property', 'key', 'state')}
    )`

export const hashed = ({ of }: HolderTable, text: string): string => of.digest.sql(text)

/** The name `n` is a former one that the row with this key may take. */
export function isFree(holder: HolderTable, key: string): string {
  const field = nameFields(holder)
  return `${field('n', 'state')} ${op('<>')} 'held'
        AND (${field('n', 'until')} ${op('<=')} pg_catalog.statement_timestamp()
          OR ${equal(field('n', 'holder'), literal(holder.holder))}
            AND ${equal(field('n', 'key'), key)})`
}

/** What becomes of a former name that is taken. */
export const becomesHeld = (holder: HolderTable): string => {
  const field = nameFields(holder)
  return `${field('', 'state')} = 'held', ${field('', 'since')} = pg_catalog.statement_timestamp(),
         ${field('', 'until')} = NULL`
}

/**
 * DO UPDATE locks the conflicting row even if it changes nothing. So every statement locks the names that it takes or
 * gives up in one order, and two statements over two tables never form a cycle of waits.
 */
export const onConflict = (holder: HolderTable): string => {
  const field = nameFields(holder)
  const copied = (['holder', 'property', 'key'] as const).map(
    (column) => `${field('', column)} = ${field('EXCLUDED', column)}`,
  )
  return `ON CONFLICT (${field('', 'namespace', 'hash', 'number')}) DO UPDATE
      SET ${copied.join(',\n        ')},
        ${becomesHeld(holder)}
      WHERE ${equal(`${field('n', 'text')} COLLATE pg_catalog."C"`, `${field('EXCLUDED', 'text')} COLLATE pg_catalog."C"`)}
        AND ${isFree(holder, field('EXCLUDED', 'key'))}`
}
