import type { EntityMetadata, QueryRunner } from 'typeorm'
import { type Change, inverse, renameIndex } from '../sql/alter'
import { addLookup, installedLookups, type LookupIndex } from '../sql/lookup'
import type { ChangingTable } from './changing-table'
import { emit } from './record-ddl'
import { tableDeclarations } from './registry'
import { foreignSchema } from './resolve-declaration'
import { triggerWorks } from './trigger-sets'

/** Names of the look-up indexes that stand on the tables of these entities. */
export async function findLookups(
  queryRunner: QueryRunner,
  searchSchema: string,
  metadatas: readonly EntityMetadata[],
): Promise<ReadonlySet<string>> {
  const schemas = [...new Set(metadatas.map(({ schema }) => schema ?? searchSchema))]
  const names = metadatas.flatMap(wantedLookups).map(({ name }) => name)
  const query = async (sql: string, values?: unknown[]): Promise<unknown[]> =>
    (await queryRunner.query(sql, values)) as unknown[]
  return new Set(await installedLookups(query, schemas, names))
}

/** The look-up indexes that an entity's declarations ask for. */
export function wantedLookups(metadata: EntityMetadata): LookupIndex[] {
  const ofTexts = tableDeclarations(metadata).flatMap(({ lookup: name, table: rows }) => {
    const [column] = rows.text
    return name === undefined || !column ? [] : { rows, name, column: column.name }
  })
  return [...ofTexts, ...triggerWorks(metadata).flatMap(({ lookups = [] }) => lookups)]
}

/**
 * Makes what stands what is wanted. TypeORM does not see these indexes: 0.3 would make a btree of them, which refuses
 * long texts.
 *
 * @param installed names, of all tables
 * @param table of the picture, whose columns have their new names already
 * @returns those to make once the columns are done
 */
export async function changeLookups(
  installed: ReadonlySet<string>,
  { queryRunner, metadata, table }: ChangingTable,
): Promise<Change[]> {
  const isLookup = ({ name = '' }: { readonly name?: string | undefined }): boolean => installed.has(name)
  const standing = table.indices.filter(isLookup)
  table.indices = table.indices.filter((index) => !isLookup(index))
  const wanted = wantedLookups(metadata)
  const rows = { schema: foreignSchema(metadata), table: metadata.tableName }
  const made: Change[] = []
  for (const one of wanted) {
    const found = standing.find(({ columnNames }) => columnNames.length === 1 && columnNames[0] === one.column)
    if (!found) made.push(addLookup(one))
    else if (found.name && found.name !== one.name) await emit(queryRunner, renameIndex(one.rows, found.name, one.name))
  }
  for (const {
    name = '',
    columnNames: [column = ''],
  } of standing) {
    if (wanted.some((one) => one.column === column)) continue
    await emit(queryRunner, inverse(addLookup({ rows, name, column })))
  }
  return made
}
