import type { EntityMetadata, QueryRunner, Table } from 'typeorm'
import { indexCondition, sameCondition } from '../sql/alter'
import type { TextRows } from '../sql/text-table'
import type { Digest } from '../text/digest'

/** A table whose declarations may change. */
export interface ChangingTable {
  readonly queryRunner: QueryRunner
  readonly metadata: EntityMetadata
  /** The schema builder's picture of the table, to be brought up to date with every statement. */
  readonly table: Table
}

/** The rules of the rows until now, as the installed guard noted them. */
export interface RowsBefore extends Omit<TextRows, 'digest'> {
  readonly digestName: string
  /** undefined: the user's own digest, which this program no longer has. */
  readonly digest: Digest | undefined
}

export const hasColumn = ({ table }: ChangingTable, name: string): boolean => table.findColumnByName(name) !== undefined

export const hasIndex = ({ table }: ChangingTable, name: string): boolean =>
  table.indices.some((index) => index.name === name)

/** The index, with the rows in it that it should hold; TypeORM does not compare conditions. */
export const hasWholeIndex = ({ table }: ChangingTable, rows: Pick<TextRows, 'index' | 'deleted'>): boolean =>
  table.indices.some(({ name, where }) => name === rows.index && sameCondition(indexCondition(rows), where))

export const hasCheck = ({ table }: ChangingTable, name: string): boolean =>
  table.checks.some((check) => check.name === name)

/** A column of this name is wanted. */
export const isDeclared = ({ metadata }: ChangingTable, name: string): boolean =>
  metadata.columns.some(({ databaseName }) => databaseName === name)
