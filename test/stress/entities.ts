import 'reflect-metadata'
import { Column, DeleteDateColumn, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText } from '../../src'
import { trim } from '../../src/text'
import { fewHashes } from '../support/digests'

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

/** Rows that are deleted softly free their texts, and come back. */
@Entity('stress soft')
export class StressSoft {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ normalize: trim(), digest: fewHashes(4), ignoreDeleted: true }) text!: string
  @Column({ type: 'text', nullable: true }) note!: string | null
  @DeleteDateColumn() deletedAt!: Date | null
}

/** All, as what the actions see. */
export type StressEntity = StressPage | StressScoped | StressSoft
