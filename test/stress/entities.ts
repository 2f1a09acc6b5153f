import 'reflect-metadata'
import { hash } from 'node:crypto'
import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText } from '../../src'
import { trim } from '../../src/text'
import type { Digest } from '../../src/text/digest'

/** MD5 cut so far that only `count` values occur; at most 16. */
export function fewHashes(count: number): Digest {
  const values = Array.from({ length: 16 }, (_, digit) => (digit % count).toString(16))
  return {
    name: `few${count}`,
    type: 'uuid',
    js: (text) => (values[Number.parseInt(hash('md5', text).slice(0, 1), 16)] ?? '').padEnd(32, '0'),
    sql: (expression) =>
      `pg_catalog.rpad(pg_catalog.translate(pg_catalog.left(pg_catalog.md5(${expression}), 1), ` +
      `'0123456789abcdef', '${values.join('')}'), 32, '0')::pg_catalog.uuid`,
  }
}

/** Four chains serve everything. */
@Entity('stress page')
export class StressPage {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ normalize: trim(), digest: fewHashes(4) }) text!: string
  @Column({ type: 'text', nullable: true }) note!: string | null
}

/** Two hashes within each of two scopes: four chains again, and rows that move between scopes. */
@Entity('stress scoped')
export class StressScoped {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ normalize: trim(), digest: fewHashes(2), scope: ['tenant'] }) text!: string
  @Column({ type: 'integer' }) tenant!: number
  @Column({ type: 'text', nullable: true }) note!: string | null
}

/** Both, as what the actions see. */
export type StressEntity = StressPage | StressScoped
