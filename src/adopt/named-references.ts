import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, type Rule } from '../options'
import { FIND_COLUMN, FIND_TABLE, READ_PRIMARY, type Reference } from '../sql/adopt-merge'
import { qualified } from '../sql/identifier'
import { withTarget } from './adopt'
import { PROPERTY } from './options'
import type { AdoptSession } from './session'
import { findDeclaration, type Target } from './target'

/** What a person names for a merge: tables and columns that no foreign key tells of, or tables that may lose rows. */
export interface NamedReferences {
  /** Columns that refer to the primary key without a foreign key, as `table.column` or `schema.table.column`. @default [] */
  readonly also?: readonly string[]
  /**
   * Tables, as `table` or `schema.table`, whose rows become one too where a unique index stands against turning a
   * reference, with what refers to them in turn: the row stays that referred to the row that stays. Rows that differ in
   * nothing but key and reference do so anyway. @default {}: the row that would go is left and reported
   */
  readonly conflict?: Readonly<Record<string, 'merge'>>
}

export const NAMED_RULES: Readonly<Record<keyof NamedReferences, Rule>> = {
  also: {
    takes: (value) => Array.isArray(value) && value.every((name) => typeof name === 'string'),
    expected: 'a list of names as table.column',
  },
  conflict: {
    takes: (value) =>
      typeof value === 'object' && value !== null && Object.values(value).every((one) => one === 'merge'),
    expected: `an object as { bookmark: 'merge' }`,
  },
}

/**
 * Looks whether the tables and columns exist that a merge names. `mergeDuplicates` does so too; this is for whoever
 * adopts the table first, which may take hours.
 *
 * @throws DeclarationError for one that does not exist
 * @throws AdoptionError while an adoption is running
 */
export async function checkMerge(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: NamedReferences & { readonly property?: string | undefined },
): Promise<void> {
  checkOptions('checkMerge()', options, { ...PROPERTY, ...NAMED_RULES })
  const declaration = findDeclaration(dataSource, entity, options.property)
  await withTarget({ dataSource, declaration, options: {}, seams: {} }, async (session, target) => {
    await namedReferences(session, target, options)
  })
}

/** A name that is misspelt would leave every row of the table that was meant. */
export async function namedReferences(
  session: AdoptSession,
  target: Target,
  { also = [], conflict = {} }: NamedReferences,
): Promise<Reference[]> {
  for (const name of Object.keys(conflict)) {
    const found = await session.query(FIND_TABLE, [name])
    if (found.length > 0) continue
    throw new DeclarationError(`"conflict" names "${name}", but there is no such table. Write table or schema.table.`)
  }
  return await alsoReferring(session, target, also)
}

/**
 * References without a foreign key, as a person names them.
 *
 * @throws DeclarationError for a column that is not there, and a table without a primary key
 */
async function alsoReferring(session: AdoptSession, { on }: Target, also: readonly string[]): Promise<Reference[]> {
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
