import type { DataSource, EntityMetadata } from 'typeorm'
import { TextRejectedError } from '../errors'
import { tableState } from '../sql/catalog'
import { readSurroundings } from '../sql/doctor-catalog'
import { type HeldName, isNoted, isTrue, keyOfResult, numbered, type PageParts } from '../sql/doctor-rows'
import { qualified } from '../sql/identifier'
import { normalizeText } from '../text/normalizer'
import { holderName, holderTable, namesIn, namesTable } from '../typeorm/names'
import { dataSourceOf, type NameDeclaration, rootOf } from '../registry/registry'
import { type DoctorFinding, FindingTally, type Place } from './findings'
import { missingColumns, relationOf, rowsOf, type Subject, toKey } from './subject'

const heldName = (declaration: NameDeclaration, rows: string): HeldName => ({
  holder: holderTable(declaration.metadata),
  column: declaration.text.column.databaseName,
  namespace: declaration.namespace,
  rows,
})

/** Looks at every row that may have a name, and at the table of names in the same moment. */
export async function lookAtNames(subject: Subject, declaration: NameDeclaration, place: Place): Promise<NamesLook> {
  const tally = new FindingTally()
  const name = heldName(declaration, subject.table.rows)
  const parts: PageParts = {
    table: subject.table,
    columns: [name.column],
    texts: [name.column],
    select: { ...numbered('t', [name.column]), noted: (await namesStand(subject)) ? isNoted(name) : `'true'` },
  }
  let [rows, nulls] = [0, 0]
  for await (const { results } of subject.reader.pages(parts)) {
    for (const result of results) {
      const key = toKey(subject, keyOfResult(subject.table, result))
      const text = result['t0'] ?? null
      if (text === null) nulls++
      else noteNormalized(declaration, text, (code, reason) => tally.add(code, [key], reason))
      if (result['noted'] !== 'true') tally.add('name.missing', [key])
    }
    rows += results.length
    subject.onRows(declaration.name, rows)
  }
  return { rows, nulls, findings: tally.findings(place) }
}

/** The table of names exists; if it does not, that is a finding of its own. */
async function namesStand({ metadata, reader }: Subject): Promise<boolean> {
  const dataSource = dataSourceOf(metadata)
  const { schema, table } = namesTable(dataSource)
  const { table: state } = await tableState(reader.query, qualified(schema, table), [])
  return state !== null && missingColumns(state, namesColumns(dataSource)).length === 0
}

/** What was counted of the rows that may have a name. */
interface NamesLook {
  readonly rows: number
  readonly nulls: number
  readonly findings: readonly DoctorFinding[]
}

function noteNormalized(
  { text: { normalizer }, name }: NameDeclaration,
  text: string,
  add: (code: 'text.unnormalized' | 'text.refused', reason?: string) => void,
): void {
  try {
    if (normalizeText(normalizer, name, text) !== text) add('text.unnormalized')
  } catch (error) {
    add('text.refused', error instanceof TextRejectedError ? error.reason : 'its normalizer threw an error')
  }
}

/**
 * Looks at every row of the table of names, and at its holder in the same moment.
 *
 * @param subject the table of names
 * @param among the entities that the question is about. undefined: all
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
    const relation = relationOf(rootOf(declaration.metadata))
    const surroundings = await readSurroundings(subject.reader.query, relation, [])
    // Nobody holds the names of a table that is gone.
    if (surroundings) names.push(heldName(declaration, rowsOf(relation, surroundings)))
  }
  const requested = among?.map(holderName)
  const isHeld = isTrue(of, names, requested)
  const parts: PageParts = {
    table: subject.table,
    columns: namesColumns(dataSource),
    texts: [],
    select: { told: isHeld },
  }
  for await (const { results } of subject.reader.pages(parts)) {
    for (const result of results) {
      if (result['told'] === 'true') continue
      tally.add('name.untrue', [toKey(subject, keyOfResult(subject.table, result))])
    }
  }
  return tally.findings({ entity: subject.metadata.name, property: 'text' })
}

/** Columns of the table of names that are read. */
export function namesColumns(dataSource: DataSource): string[] {
  const { columns } = namesTable(dataSource)
  return [columns.key, columns.holder, columns.property, columns.namespace, columns.state, columns.text]
}
