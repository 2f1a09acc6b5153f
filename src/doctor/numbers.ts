import { countsPage, type Key, keyOfResult, numbered, type PageParts } from '../sql/doctor-rows'
import type { NumberTable } from '../sql/number-table'
import type { NumberDeclaration } from '../registry/registry'
import { type DoctorFinding, findingOf, FindingTally, type Place, SHOWN_KEYS } from './findings'
import { identityOf, looksOf, NO_PRINT, printOf, Prints } from './stored-text'
import { Groups, type Result, type Subject, toKey, typed } from './subject'

/** What was counted of the rows that have a number. */
interface NumbersLook {
  readonly rows: number
  readonly findings: readonly DoctorFinding[]
}

/** Looks at every row that has a number, and at every count. */
export async function lookAtNumbers(
  subject: Subject,
  { table, name }: NumberDeclaration,
  place: Place,
): Promise<NumbersLook> {
  const tally = new FindingTally()
  const columns = [...table.scope.map((one) => one.name), table.number]
  const parts: PageParts = { table: subject.table, columns, texts: [], select: numbered('v', columns) }
  const identity = (result: Result): string | undefined =>
    result[`v${columns.length - 1}`] === null
      ? undefined
      : identityOf(...columns.map((_, index) => result[`v${index}`]))
  const print = (result: Result): number => {
    const found = identity(result)
    return found === undefined ? NO_PRINT : printOf(found)
  }
  const prints = new Prints(print)
  let rows = 0
  for await (const page of subject.reader.pages(parts)) {
    for (const result of page.results) {
      if (identity(result) === undefined)
        tally.add('number.missing', [toKey(subject, keyOfResult(subject.table, result))])
    }
    prints.add(page, page.results.map(print))
    rows += page.results.length
    subject.onRows(name, rows)
  }
  const twice = await lookAgain(subject, prints, { parts, identity })
  if (table.count) await lookAtCounts(subject, table, tally)
  const keys = twice.keys.map((key) => toKey(subject, key))
  const groups =
    twice.groups === 0 ? [] : [findingOf('number.twice', place, { count: twice.surplus, keys, groups: twice.report() })]
  return { rows, findings: [...groups, ...tally.findings(place)] }
}

async function lookAgain(
  subject: Subject,
  prints: Prints,
  { parts, identity }: { readonly parts: PageParts; readonly identity: (result: Result) => string | undefined },
): Promise<Groups> {
  const { reader } = subject
  const twice = new Groups(subject, SHOWN_KEYS)
  for await (const groups of prints.groups(reader, parts)) {
    for (const among of looksOf(groups)) {
      await reader.snapshot(async () => {
        const found = new Map<string, Key[]>()
        for await (const { results } of reader.pages(parts, { among })) {
          for (const result of results) {
            const id = identity(result)
            if (id !== undefined) found.set(id, [...(found.get(id) ?? []), keyOfResult(subject.table, result)])
          }
        }
        for (const [id, keys] of found) if (keys.length > 1) twice.add(id, keys)
      })
    }
  }
  return twice
}

/** Scopes whose counts are read by one statement. */
const COUNTED_SCOPES = 500

async function lookAtCounts(subject: Subject, table: NumberTable, tally: FindingTally): Promise<void> {
  const types = typed(
    subject.state,
    table.scope.map(({ name }) => name),
  ).map(({ declared }) => declared)
  for (let after: readonly string[] | undefined; ;) {
    const results = await subject.reader.rows(countsPage(table, subject.table, { after, limit: COUNTED_SCOPES, types }))
    for (const result of results) {
      if (result['right'] === 'true') continue
      tally.add('count.wrong', [toKey(subject, JSON.parse(result['key'] ?? '[]') as string[])])
    }
    const last = results.at(-1)
    // A number without scope has one count, and no page follows it.
    if (!last || types.length === 0) return
    after = types.map((_, index) => last[`s${index}`] ?? '')
  }
}
