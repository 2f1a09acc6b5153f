import type { DataSource, EntityMetadata } from 'typeorm'
import { groupBy } from '../calls/batches'
import type { Finding } from '../errors'
import { namesIn, namesTable } from '../registry/name-declarations'
import { holderTable } from '../names/sql/holder-table'
import { dataSourceOf, type NameDeclaration, type NumberDeclaration, rootOf, textsOfTable } from '../registry/registry'
import { type TableState, tableState } from '../sql/catalog'
import { namedSet } from '../names/sql/fragments'
import { isElsewhere } from '../sql/spread'
import { type NumberTable, scopesName } from '../sql/numbers'
import { tableName } from '../sql/text-table'
import { normalizeText } from '../text/normalizer'
import { keptScopes } from '../numbers/sql/declared'
import {
  type DoctorFinding,
  FindingTally,
  Groups,
  missingColumns,
  type Place,
  type Reader,
  unlessUnreadable,
  qualifiedTable,
  type Result,
  countedRows,
  databaseNames,
  keyOf,
  type Subject,
  toKey,
  typed,
} from './findings'
import {
  countsPage,
  FIND_FOREIGN,
  type HeldName,
  isNoted,
  isTrue,
  keyOfResult,
  numberedColumns,
  type PageParts,
  readSurroundings,
} from './sql'
import { identityOf, printOf, Prints } from './prints'
import { rejectionOf } from './texts'

const heldName = (declaration: NameDeclaration, rows: string | undefined): HeldName => ({
  holder: holderTable(declaration.metadata),
  column: declaration.text.column.databaseName,
  namespace: declaration.namespace,
  rows,
})

/** Examines every row that may have a name, together with the table of names at the same moment. */
export async function lookAtNames(
  subject: Subject,
  declaration: NameDeclaration,
  place: Place,
): Promise<{ readonly rows: number; readonly nulls: number; readonly findings: readonly DoctorFinding[] }> {
  const { reader } = subject
  const dataSource = dataSourceOf(subject.metadata)
  const of = await tableState(reader.query, tableName(namesTable(dataSource)), [])
  const isWhole = of.table !== null && missingColumns(of.table, namesColumns(dataSource)).length === 0
  // If the table of names cannot be read, that is a separate finding.
  const isReadable = isWhole && !(await isForeign(dataSource, reader))
  const tally = new FindingTally()
  const name = heldName(declaration, subject.table.rows)
  const parts: PageParts = {
    table: subject.table,
    columns: [name.column],
    texts: [name.column],
    select: { ...numberedColumns('t', [name.column]), noted: isReadable ? isNoted(name) : `'true'` },
  }
  let [rows, nulls] = [0, 0]
  for await (const { results } of reader.pages(parts)) {
    for (const result of results) {
      const key = keyOf(subject, result)
      const text = result['t0'] ?? null
      try {
        if (text === null) nulls++
        else if (normalizeText(declaration.text.normalizer, declaration.name, text) !== text)
          tally.add('text.unnormalized', [key])
      } catch (error) {
        tally.add('text.rejected', [key], rejectionOf(error))
      }
      if (result['noted'] !== 'true') tally.add('name.missing', [key])
    }
    rows += results.length
    subject.onRows(declaration.name, rows)
  }
  return { rows, nulls, findings: tally.findings(place) }
}

/**
 * Whether the owner of the table of names may not act as the owner of a table with names. If so, casts of its types and
 * its policies would run as the reader.
 */
export async function isForeign(dataSource: DataSource, { query }: Reader): Promise<boolean> {
  const holders = namesIn(dataSource).map(({ metadata }) => qualifiedTable(rootOf(metadata)))
  return (await query(FIND_FOREIGN, [tableName(namesTable(dataSource)), holders])).length > 0
}

/**
 * Examines every row of the table of names, together with its holder at the same moment.
 *
 * @param subject the table of names
 * @param among the entities to examine; if undefined, all
 */
export async function lookAtHolders(
  subject: Subject,
  dataSource: DataSource,
  among: readonly EntityMetadata[] | undefined,
): Promise<readonly DoctorFinding[]> {
  const tally = new FindingTally()
  const of = namesTable(dataSource)
  const names: HeldName[] = []
  for (const declaration of namesIn(dataSource)) {
    const relation = qualifiedTable(rootOf(declaration.metadata))
    const surroundings = await readSurroundings(subject.reader.query, relation)
    // No row holds the names of a table that does not exist.
    if (!surroundings) continue
    const { table } = await tableState(subject.reader.query, relation, [])
    const columns = [declaration.text.column, ...rootOf(declaration.metadata).primaryColumns]
    const isRead =
      !isElsewhere(surroundings.spread.distribution) &&
      table &&
      missingColumns(table, databaseNames(columns)).length === 0
    names.push(heldName(declaration, isRead ? countedRows(relation, surroundings) : undefined))
  }
  const parts: PageParts = {
    table: subject.table,
    columns: namesColumns(dataSource),
    texts: [],
    select: { told: isTrue(of, names, among?.map(holderTable)) },
  }
  for await (const { results } of subject.reader.pages(parts)) {
    for (const result of results) {
      if (result['told'] === 'true') continue
      tally.add('name.untrue', [keyOf(subject, result)], namedSet(of.table, 'write'))
    }
  }
  return tally.findings({ entity: subject.metadata.name, property: 'text' })
}

/** The columns to read from the table of names. */
export function namesColumns(dataSource: DataSource): string[] {
  const { columns } = namesTable(dataSource)
  return [columns.key, columns.holder, columns.property, columns.namespace, columns.state, columns.text]
}

/** Examines every row of a table with numbers, and every count. */
export async function lookAtNumbers(
  subject: Subject,
  { table, name }: NumberDeclaration,
  place: Place,
): Promise<{ readonly rows: number; readonly findings: readonly DoctorFinding[] }> {
  const { reader } = subject
  const tally = new FindingTally()
  const twice = new Groups(subject)
  const columns = [...table.scope.map((one) => one.name), table.number]
  const parts: PageParts = { table: subject.table, columns, texts: [], select: numberedColumns('v', columns) }
  /** Undefined for a row without a number. */
  const identity = (result: Result): string | undefined => {
    const values = columns.map((_, index) => result[`v${index}`])
    return values.at(-1) === null ? undefined : identityOf(...values)
  }
  const print = (result: Result): number => printOf(identity(result))
  const prints = new Prints(print)
  let rows = 0
  for await (const page of reader.pages(parts)) {
    for (const result of page.results)
      if (identity(result) === undefined) tally.add('number.missing', [keyOf(subject, result)])
    prints.add(page, page.results.map(print))
    rows += page.results.length
    subject.onRows(name, rows)
  }
  await prints.lookAgain(reader, parts, async (results) => {
    for (const [id, same] of groupBy(results, identity))
      if (id !== undefined && same.length > 1)
        twice.add(
          id,
          same.map((result) => keyOfResult(subject.table, result)),
        )
    await Promise.resolve()
  })
  // Another role may have made a view of this name, whose functions would run as the reader.
  const kept = subject.state.tables.find((one) => one.name === scopesName(table))
  const isRead = table.count && kept && Object.keys(keptScopes(table).columns).every((one) => one in kept.columns)
  const ofCounts = isRead ? await unlessUnreadable(place, async () => await lookAtCounts(subject, table, place)) : []
  return { rows, findings: [...twice.findings('number.twice', place), ...tally.findings(place), ...ofCounts] }
}

/** The number of scopes whose counts one statement reads. */
const COUNTED_SCOPES = 500

async function lookAtCounts(subject: Subject, table: NumberTable, place: Place): Promise<readonly DoctorFinding[]> {
  const tally = new FindingTally()
  const scope = table.scope.map((one) => one.name)
  const types = typed(subject.state, scope).map(({ declared }) => declared)
  for (let after: readonly string[] | undefined; ;) {
    const results = await subject.reader.rows(countsPage(table, subject.table, { after, limit: COUNTED_SCOPES, types }))
    for (const result of results) {
      if (result['right'] === 'true') continue
      const key = result['key']
      tally.add('count.wrong', typeof key === 'string' ? [toKey(subject, JSON.parse(key) as string[])] : [])
    }
    const last = results.at(-1)
    // A number without scope has only one count, and no page follows.
    if (!last || types.length === 0) return tally.findings(place)
    after = types.map((_, index) => last[`s${index}`] ?? '')
  }
}

/** The unique indexes of the tables of names, tokens and URLs. The package declares these tables as a whole. */
const OUR_INDEXES: ReadonlySet<string> = new Set(['names_unique_index', 'once_token_unique_index', 'url_unique_index'])

/** Whether the package declares the whole table. */
export const isOurs = (metadata: EntityMetadata): boolean =>
  textsOfTable(metadata).some(({ table }) => OUR_INDEXES.has(table.index))

/** The server adds a type, and omits quotes around numbers. With `quote_all_identifiers`, it adds quotes to names. */
const plain = (value: string | null): string | undefined => value?.replaceAll(/['"]/gu, '').replace(/::[\w ]+$/u, '')

/**
 * Finds differences in an entity's own columns, indexes and primary key, which `migration:generate` leaves to TypeORM.
 * For an entity of the user, it checks only the primary key, because the doctor reads by that key.
 */
export function ownDrift(metadata: EntityMetadata, { columns, indexes, checks }: TableState): Finding[] {
  const primary = indexes.find((one) => one.primary)?.columns ?? []
  const declared = metadata.primaryColumns.map(({ databaseName }) => databaseName)
  const key = declared.every((name) => primary.includes(name))
    ? []
    : [{ kind: 'different', object: 'table', name: metadata.tableName, detail: 'it has another primary key' } as const]
  if (!isOurs(metadata)) return key
  const ofTexts = new Set(
    textsOfTable(metadata).flatMap(({ table }) => [table.hash, table.number, table.chained, table.check]),
  )
  const ofIndexes = metadata.indices
    .filter(({ isUnique, synchronize }) => !isUnique && synchronize)
    .flatMap(({ name, columns: wanted }): Finding[] => {
      const found = indexes.find((one) => one.name === name && one.valid)
      const isSame = found?.columns.join() === wanted.map(({ databaseName }) => databaseName).join()
      return isSame ? [] : [{ kind: found ? 'different' : 'missing', object: 'index', name }]
    })
  const ofChecks = metadata.checks
    .filter(({ name }) => !ofTexts.has(name) && !checks.some((one) => one.name === name))
    .map(({ name }): Finding => ({ kind: 'missing', object: 'check', name }))
  const different = columns.flatMap((found): Finding[] => {
    const column = metadata.columns.find(({ databaseName }) => databaseName === found.name)
    if (!column || ofTexts.has(found.name) || column.isGenerated) return []
    const wanted = dataSourceOf(metadata).driver.normalizeDefault(column) ?? null
    const isSame = plain(found.default) === plain(wanted)
    const detail =
      found.nullable && !column.isNullable ? 'it may be NULL' : isSame ? undefined : 'it has another default'
    return detail === undefined ? [] : [{ kind: 'different', object: 'column', name: found.name, detail }]
  })
  return [...key, ...ofIndexes, ...ofChecks, ...different]
}
