import { DeclarationError } from '../errors'
import { FIND_COLUMN, READ_PRIMARY, type Reference } from '../sql/adopt-merge'
import { qualified } from '../sql/identifier'
import type { AdoptSession } from './session'
import type { Target } from './target'

/**
 * References without a foreign key, as a person names them.
 *
 * @throws DeclarationError for a column that is not there, and a table without a primary key
 */
export async function alsoReferring(
  session: AdoptSession,
  { on }: Target,
  also: readonly string[],
): Promise<Reference[]> {
  const references: Reference[] = []
  for (const name of also) {
    const [column = '', table = '', schema = on.table.schema] = name.split('.').reverse()
    const [found, [known]] = [
      await session.query<{ name: string }>(READ_PRIMARY, [qualified(schema, table)]),
      await session.query(FIND_COLUMN, [qualified(schema, table), column]),
    ]
    if (known === undefined || found.length === 0 || on.primary.length !== 1) {
      throw new DeclarationError(`"${name}" must name a column of a table with a primary key. Write table.column.`)
    }
    references.push({
      schema,
      table,
      columns: [column],
      referenced: on.primary,
      primary: found.map((one) => one.name),
      own: schema === on.table.schema && table === on.table.table,
    })
  }
  return references
}
