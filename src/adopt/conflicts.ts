import {
  findConflicts,
  type KeyedTable,
  logAndDelete,
  READ_KEYED,
  readPair,
  refersItself,
  turn,
} from '../sql/adopt-conflicts'
import { type Reference, referencesTo } from '../sql/adopt-merge'
import type { AdoptedTable } from '../sql/adopt-table'
import { qualified } from '../sql/identifier'
import type { AdoptSession } from './session'

/** What stands against it that two rows become one: the constraint, or a clause. */
export class Unmergeable extends Error {
  override readonly name = 'Unmergeable'
}

/** Two rows of a table, of which one goes and one stays, by their keys. */
interface Pair {
  readonly old: readonly string[]
  readonly kept: readonly string[]
}

/** Rows refer to rows that refer to rows; further than this somebody should look. */
const DEEPEST = 10

/** Merges rows that would clash once their references are turned, and what refers to them in turn. */
export class Conflicts {
  private readonly tables = new Map<string, Promise<KeyedTable>>()
  private readonly references = new Map<string, Promise<Reference[]>>()

  /** @param merged tables, as `table` or `schema.table`, whose rows become one although they differ */
  constructor(
    private readonly session: AdoptSession,
    private readonly on: AdoptedTable,
    private readonly merged: readonly string[],
  ) {}

  /** Clears the way for the references to the row of a place of work. @throws Unmergeable */
  async clear(place: string, reference: Reference): Promise<void> {
    const [pair] = await this.session.query<Pair>(readPair(this.on), [place])
    if (pair) await this.clearPair(await this.keyed(this.on.table), reference, pair, 1)
  }

  private async clearPair(parent: KeyedTable, reference: Reference, pair: Pair, depth: number): Promise<void> {
    const child = await this.keyed(reference)
    if (child.primary.length === 0) return
    const touched = child.indexes.filter(({ columns }) => columns.some((name) => reference.columns.includes(name)))
    for (const { name, columns } of touched) {
      const sql = findConflicts(parent, reference, child, columns)
      for (const one of await this.session.query<Pair & { same: boolean }>(sql, [pair.old, pair.kept])) {
        if (!one.same && !this.isMerged(child)) throw new Unmergeable(name)
        await this.mergePair(child, one, depth)
      }
    }
  }

  private isMerged({ schema, table }: KeyedTable): boolean {
    return this.merged.includes(table) || this.merged.includes(`${schema}.${table}`)
  }

  private async mergePair(table: KeyedTable, pair: Pair, depth: number): Promise<void> {
    if (depth > DEEPEST) throw new Unmergeable(`rows refer to each other over more than ${DEEPEST} tables`)
    const { schema, table: name, primary } = table
    const parent = { schema, table: name, primary }
    const values = [pair.old, pair.kept]
    for (const reference of await this.referencesTo(table)) {
      if (reference.own) await this.refuseSelf(table, reference, values)
      await this.clearPair(table, reference, pair, depth + 1)
      const logged = JSON.stringify({ ...reference, parent })
      await this.session.query(turn(this.on, table, reference), [...values, this.on.table.guard, logged])
    }
    const [log = '', remove = ''] = logAndDelete(this.on, table)
    await this.session.query(log, [...values, this.on.table.guard, JSON.stringify({ ...parent, gone: true })])
    await this.session.query(remove, [pair.old])
  }

  private async refuseSelf(table: KeyedTable, reference: Reference, values: unknown[]): Promise<void> {
    const [found] = await this.session.query<{ n: string }>(refersItself(table, reference), values)
    if (found?.n !== '0') throw new Unmergeable(`a row of ${table.table} would refer to itself`)
  }

  private async keyed({ schema, table }: Pick<Reference, 'table'> & { readonly schema: string }): Promise<KeyedTable> {
    const name = qualified(schema, table)
    const found = this.tables.get(name) ?? this.readKeyed(name)
    this.tables.set(name, found)
    return await found
  }

  private async readKeyed(name: string): Promise<KeyedTable> {
    const [row] = await this.session.query<{ found: string }>(READ_KEYED, [name])
    return JSON.parse(row?.found ?? '') as KeyedTable
  }

  private async referencesTo({ oid }: KeyedTable): Promise<Reference[]> {
    const found = this.references.get(oid) ?? referencesTo(this.session.query, oid)
    this.references.set(oid, found)
    return await found
  }
}
